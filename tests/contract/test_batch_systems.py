"""What every batch system does: see `fsctx.coordinator.submit.base.BatchSystem`."""

import os
import stat
from pathlib import Path

import pytest
from fabricate import FabricatedRun, fabricate

from fsctx.coordinator.submit.base import BatchSystem, PilotRequest, PilotState
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import Pilot
from fsctx.errors import InputError
from fsctx.protocol.processes import Process


@pytest.fixture(params=[Local])
def system(request: pytest.FixtureRequest) -> BatchSystem:
    made: BatchSystem = request.param()
    return made


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=10)


@pytest.fixture
def sleeping(run: FabricatedRun, tmp_path: Path) -> PilotRequest:
    """Asks for a pilot that lives until it is told to leave."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return PilotRequest(name="s-1", run=run.root, n=1, since_order=0, python=str(script), cores=1)


def test_rendering_the_same_request_gives_the_same_text(system: BatchSystem, sleeping: PilotRequest) -> None:
    assert system.render(sleeping, {}) == system.render(sleeping, {})


def test_a_setting_that_the_template_lacks_is_refused(system: BatchSystem, sleeping: PilotRequest) -> None:
    with pytest.raises(InputError, match="--set no_such_setting"):
        system.render(sleeping, {"no_such_setting": "1"})


def test_a_pilot_runs_until_it_is_removed(system: BatchSystem, run: FabricatedRun, sleeping: PilotRequest) -> None:
    pilots = system.submit(run.store, sleeping, system.render(sleeping, {}))
    try:
        assert len(pilots) == 1
        assert list(system.query(pilots)) == [PilotState.RUNNING]
    finally:
        system.remove(pilots)
        os.waitpid(int(pilots[0].id), 0)
    assert list(system.query(pilots)) == [PilotState.GONE]
    system.remove(pilots)  # again: no harm


def test_of_pilots_that_cannot_be_seen_from_here_nothing_is_known(system: BatchSystem) -> None:
    elsewhere = Pilot(id="7", process=Process(host="elsewhere", boot_id="b", pid=1, started_ticks=1))
    assert list(system.query([elsewhere, Pilot(id="8")])) == [PilotState.QUEUED, PilotState.QUEUED]
    system.remove([elsewhere, Pilot(id="8")])
