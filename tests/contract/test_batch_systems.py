"""What every batch system does: see `fsctx.coordinator.submit.base.BatchSystem`."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fabricate import FabricatedRun, fabricate
from fake_batch import HELD, QUEUED, RUNNING, FakeAccess, FakeCommands, Queue

from fsctx.coordinator.submit.base import BatchSystem, PilotRequest, Seen
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.fake import FakeBatch
from fsctx.coordinator.submit.gridengine import GridEngine
from fsctx.coordinator.submit.htcondor.system import HTCondor
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import Pilot
from fsctx.coordinator.submit.slurm import Slurm
from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError
from fsctx.protocol.processes import Process


@dataclass(frozen=True, slots=True)
class Bed:
    """A batch system, and the queue behind it."""

    system: BatchSystem
    start: Callable[[Pilot], None]
    end: Callable[[Pilot], None]
    hold: Callable[[Pilot], None] | None = None
    queue: Queue | None = None


def with_queue(system: BatchSystem, queue: Queue) -> Bed:
    return Bed(
        system=system,
        start=lambda pilot: queue.move(pilot.id, QUEUED, RUNNING),
        end=lambda pilot: queue.move(pilot.id, RUNNING, None),
        hold=lambda pilot: queue.move(pilot.id, QUEUED, HELD),
        queue=queue,
    )


def htcondor() -> Bed:
    access = FakeAccess()
    return with_queue(HTCondor(access, access.how, Templates()), access.queue)


def slurm() -> Bed:
    commands = FakeCommands()
    return with_queue(Slurm(Templates(), call=commands), commands.queue)


def gridengine() -> Bed:
    commands = FakeCommands()
    return with_queue(GridEngine(Templates(), call=commands), commands.queue)


def fake() -> Bed:
    system = FakeBatch()
    return Bed(system=system, start=system.start, end=system.end)


QUEUES = [htcondor, slurm, gridengine, fake]
REAL = [htcondor, slurm, gridengine]


@pytest.fixture(params=[*QUEUES, Local], ids=lambda make: make.__name__.lower())
def system(request: pytest.FixtureRequest) -> BatchSystem:
    made = request.param()
    return made.system if isinstance(made, Bed) else made


@pytest.fixture(params=QUEUES, ids=lambda make: make.__name__)
def bed(request: pytest.FixtureRequest) -> Bed:
    made: Bed = request.param()
    return made


@pytest.fixture(params=REAL, ids=lambda make: make.__name__)
def real(request: pytest.FixtureRequest) -> Bed:
    made: Bed = request.param()
    return made


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=10)


@pytest.fixture
def asked(run: FabricatedRun, tmp_path: Path) -> PilotRequest:
    """Asks for a pilot that lives until it is told to leave."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return PilotRequest(name="s-1", run=run.root, n=1, since_order=0, python=str(script), cores=1)


def five(run: FabricatedRun) -> PilotRequest:
    return PilotRequest(name="s-5", run=run.root, n=5, since_order=0, python="/usr/bin/python3", cores=1)


def submitted(bed: Bed, run: FabricatedRun) -> Pilot:
    pilots = bed.system.submit(run.store, five(run), bed.system.render(five(run), {}))
    assert [pilot.count for pilot in pilots] == [5]
    return pilots[0]


def seen(bed: Bed, pilot: Pilot) -> Seen:
    return bed.system.query([pilot])[0]


def counts(found: Seen) -> tuple[int, int, int, int]:
    return (found.queued, found.running, found.held, found.gone)


def test_rendering_the_same_request_gives_the_same_text(system: BatchSystem, asked: PilotRequest) -> None:
    assert system.render(asked, {}) == system.render(asked, {})


def test_a_setting_that_the_template_lacks_is_refused(system: BatchSystem, asked: PilotRequest) -> None:
    with pytest.raises(InputError, match="--set no_such_setting"):
        system.render(asked, {"no_such_setting": "1"})


def test_a_setting_cannot_bring_further_lines(real: Bed, asked: PilotRequest) -> None:
    with pytest.raises(InputError, match=r"--set extra: the value has several lines"):
        real.system.render(asked, {"extra": "a\nqueue 1000"})


def test_a_local_pilot_runs_until_it_is_terminated(run: FabricatedRun, asked: PilotRequest) -> None:
    system = Local()
    pilots = system.submit(run.store, asked, system.render(asked, {}))
    try:
        assert len(pilots) == 1
        assert system.remove(pilots) == 0
        assert list(system.query(pilots)) == [Seen(running=1)]
    finally:
        system.terminate(pilots)
        os.waitpid(int(pilots[0].id), 0)
    assert list(system.query(pilots)) == [Seen(gone=1)]
    system.terminate(pilots)  # again: no harm


def test_of_local_pilots_that_cannot_be_seen_from_here_nothing_is_known() -> None:
    elsewhere = Pilot(id="7", process=Process(host="elsewhere", boot_id="b", pid=1, started_ticks=1))
    assert list(Local().query([elsewhere, Pilot(id="8")])) == [Seen(unknown=1), Seen(unknown=1)]
    Local().terminate([elsewhere, Pilot(id="8")])


def test_pilots_are_counted_from_the_queue_to_their_end(bed: Bed, run: FabricatedRun) -> None:
    pilot = submitted(bed, run)
    assert counts(seen(bed, pilot)) == (5, 0, 0, 0)
    bed.start(pilot)
    bed.start(pilot)
    assert counts(seen(bed, pilot)) == (3, 2, 0, 0)
    bed.end(pilot)
    assert counts(seen(bed, pilot)) == (3, 1, 0, 1)


def test_a_job_that_the_system_forgot_is_gone(bed: Bed) -> None:
    assert counts(seen(bed, Pilot(id="10007", count=3))) == (0, 0, 0, 3)


def test_only_pilots_that_wait_are_removed(bed: Bed, run: FabricatedRun) -> None:
    pilot, other = submitted(bed, run), submitted(bed, run)
    bed.start(pilot)
    assert bed.system.remove([pilot]) == 4
    assert counts(seen(bed, pilot)) == (0, 1, 0, 4)
    assert counts(seen(bed, other)) == (5, 0, 0, 0)
    assert bed.system.remove([pilot]) == 0


def test_a_pilot_on_hold_is_told_with_its_reason(real: Bed, run: FabricatedRun) -> None:
    pilot = submitted(real, run)
    assert real.hold is not None
    real.hold(pilot)
    found = seen(real, pilot)
    assert counts(found) == (4, 0, 1, 0)
    assert any(note.startswith("1 ") for note in found.notes)


def test_a_refusal_says_that_nothing_was_queued(real: Bed, run: FabricatedRun) -> None:
    assert real.queue is not None
    real.queue.refusal = "invalid partition specified: nowhere: nothing was queued"
    with pytest.raises(InputError, match=r"nowhere.*nothing was queued"):
        submitted(real, run)
    assert real.queue.jobs == {}


def test_a_system_that_does_not_answer_is_no_answer(real: Bed, run: FabricatedRun) -> None:
    assert real.queue is not None
    real.queue.is_reachable = False
    with pytest.raises(Unreachable):
        real.system.query([Pilot(id="1")])
    with pytest.raises(Unreachable):
        real.system.remove([Pilot(id="1")])
    with pytest.raises(Unreachable):
        submitted(real, run)
