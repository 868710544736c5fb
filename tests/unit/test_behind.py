"""Writing behind the device: what is handed over together."""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fabricate import LABELS, FabricatedRun, fabricate

from fsctx.agent.behind import Behind
from fsctx.agent.compactor import Compactor
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.saver import Saver
from fsctx.agent.threads import OsThreads
from fsctx.agent.unitwork import UnitWork
from fsctx.errors import StoreError
from fsctx.protocol import results
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin, Verdict
from fsctx.store import PosixStore
from fsctx.store.system import System


class _Refusing(System):
    """Refuses to create files of one unit."""

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        if "/00000001." in path:
            raise OSError(errno.EIO, "input/output error")
        super().create(path, content, is_durable=False)


def _clock() -> float:
    return 0.0


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=12, unit_rows=4)


@pytest.fixture
def behind(run: FabricatedRun) -> Iterator[Behind]:
    """Return what writes on a filesystem that refuses unit 1, and does not try again."""
    store, threads = PosixStore(run.root, system=_Refusing()), OsThreads()
    events = EventLog(store, "me", clock=_clock, utc=lambda: "")
    session = Session(agent="me", counter=0, progress=0, state=AgentState.RUNNING)
    origin = Origin(generation=0, agent="me", host="h", device="d", engine="e")
    behind = Behind(
        saver=Saver(store=store, run=run.manifest.run, labels=lambda _: LABELS, origin=lambda _: origin),
        heartbeat=Heartbeat(store, session, events, beat_s=1.0, threads=threads),
        events=events,
        leaving=Leaving(baseline=0, deadline_s=None, margin_s=0.0, clock=_clock, threads=threads),
        clock=_clock,
        grace_s=0.0,
        say=lambda _: None,
        worker=threads.worker("behind"),
        room=threads.room(1),
        sleep=lambda _: None,
        compactor=Compactor(
            store=store, manifest=run.manifest, labels=[LABELS], events=events, agent="me", chance=Random(1)
        ),
    )
    yield behind
    behind.worker.shutdown()


def _work(run: FabricatedRun, unit: int) -> UnitWork:
    place = run.geometry.place(unit)
    rows = range(place.first_row, place.first_row + place.n_rows)
    return UnitWork(lease_id=LeaseId(unit, 0), place=place, todo=[], verdicts=[Verdict(row=row) for row in rows])


def test_a_unit_that_cannot_be_written_keeps_none_that_was_handed_over_with_it(
    run: FabricatedRun, behind: Behind
) -> None:
    behind.publish([_work(run, unit) for unit in range(3)])
    with pytest.raises(StoreError, match=r"00000001.*input/output error"):
        behind.wait()
    assert [results.winning(run.store, unit) for unit in range(3)] == [LeaseId(0, 0), None, LeaseId(2, 0)]
    assert behind.heartbeat.ledger.units_done == 2


def test_a_place_is_free_again_after_what_could_not_be_written(run: FabricatedRun, behind: Behind) -> None:
    behind.publish([_work(run, 1)])
    with pytest.raises(StoreError):
        behind.wait()
    behind.publish([_work(run, 0), _work(run, 2)])
    behind.wait()
    assert behind.heartbeat.ledger.units_done == 2
