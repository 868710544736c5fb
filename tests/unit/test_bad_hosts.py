"""Hosts that are no good: the ledger in the run, and how long a pilot keeps its bad slot."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from fsctx.agent.leaving import Leaving
from fsctx.agent.threads import OsThreads
from fsctx.agent.unfit import DELAY_S, MOST_DELAYS, Blame
from fsctx.agent.world import World
from fsctx.errors import StoreError
from fsctx.protocol import names
from fsctx.protocol.hosts import (
    MAX_PER_HOST,
    HostFailure,
    hosts_to_exclude,
    read_host_failures,
    record_host_failure,
)
from fsctx.store import PosixStore


@pytest.fixture
def store(tmp_path: Path) -> PosixStore:
    return PosixStore(tmp_path)


def failure(host: str = "n1.pool.test", agent: str = "a", system: str | None = "htcondor") -> HostFailure:
    return HostFailure(host=host, reason="no GPU", agent=agent, time="2026-11-30T00:00:00Z", system=system)


def test_a_run_without_failures_excludes_nobody(store: PosixStore) -> None:
    assert read_host_failures(store) == []
    assert hosts_to_exclude(store, "htcondor") == []


def test_a_host_is_excluded_after_its_second_failure_by_its_own_name(store: PosixStore) -> None:
    assert record_host_failure(store, failure(agent="a")) == 1
    assert record_host_failure(store, failure("n2.pool.test", agent="b")) == 1
    assert hosts_to_exclude(store, "htcondor") == []
    assert record_host_failure(store, failure(agent="c")) == 2
    assert hosts_to_exclude(store, "htcondor") == ["n1.pool.test"]
    assert hosts_to_exclude(store, "htcondor", after=1) == ["n1.pool.test", "n2.pool.test"]


def test_a_host_is_excluded_where_it_is_known_by_its_name_alone(store: PosixStore) -> None:
    for number, system in enumerate(("htcondor", "htcondor", "slurm", None, None)):
        record_host_failure(store, failure(f"n.{system}", agent=str(number), system=system))
    assert hosts_to_exclude(store, "htcondor") == ["n.htcondor"]
    assert hosts_to_exclude(store, "slurm") == []


def test_a_host_fills_no_folder(store: PosixStore) -> None:
    counts = [record_host_failure(store, failure(agent=str(n))) for n in range(MAX_PER_HOST + 3)]
    assert counts[-3:] == [MAX_PER_HOST] * 3
    assert len(store.list(names.HOSTS)) == MAX_PER_HOST


def test_a_host_of_any_name_stays_within_the_folder(store: PosixStore) -> None:
    record_host_failure(store, failure("../../etc/x y"))
    assert [found.host for found in read_host_failures(store)] == ["../../etc/x y"]
    assert store.list(names.HOSTS) == ["------etc-x-y.0"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 7, "host": "n1"}'])
def test_a_record_that_says_nothing_is_passed_over(store: PosixStore, content: bytes) -> None:
    record_host_failure(store, failure())
    (store.root / names.host_failure("n9", 0)).write_bytes(content)
    assert [found.host for found in read_host_failures(store)] == ["n1.pool.test"]


class Time:
    """A clock that sleeping moves, and what happens at some moment."""

    def __init__(self, *, at_s: float = float("inf"), then: Callable[[], None] = lambda: None) -> None:
        self.now_s = 0.0
        self._at_s, self._then = at_s, then

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self._at_s:
            self._then()


def blame(store: PosixStore, time: Time, said: list[str], *, is_in_job: bool = True) -> Blame:
    world = World(clock=lambda: time.now_s, sleep=time.sleep)
    leaving = Leaving(baseline=0, deadline_s=None, margin_s=0, clock=world.clock, threads=OsThreads())
    return Blame(store=store, leaving=leaving, world=world, is_in_job=is_in_job, delay_s=None, say=said.append)


def test_a_pilot_keeps_its_bad_slot_the_longer_the_more_failed_there(store: PosixStore) -> None:
    for n in range(1, MOST_DELAYS + 3):
        time, said = Time(), list[str]()
        blame(store, time, said).host(failure(agent=str(n)))
        assert time.now_s == pytest.approx(DELAY_S * min(n, MOST_DELAYS))
        assert "no GPU; leaving in" in said[0]


def test_outside_of_a_batch_job_nobody_waits(store: PosixStore) -> None:
    time, said = Time(), list[str]()
    blame(store, time, said, is_in_job=False).host(failure())
    assert (time.now_s, said) == (0.0, [])
    assert len(read_host_failures(store)) == 1


def test_the_delay_that_was_asked_for_counts(store: PosixStore) -> None:
    time = Time()
    dataclasses.replace(blame(store, time, []), delay_s=7.0).host(failure())
    assert time.now_s == pytest.approx(7.0)


def test_a_pilot_that_is_told_to_leave_waits_no_longer(store: PosixStore) -> None:
    time = Time(at_s=5.0, then=lambda: one.leaving.leave_now("SIGTERM was received"))
    one = blame(store, time, [])
    one.host(failure())
    assert time.now_s == pytest.approx(5.0, abs=0.2)


def test_a_ledger_that_cannot_be_written_keeps_nobody_from_leaving(
    store: PosixStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str) -> None:
        raise StoreError("EIO")

    monkeypatch.setattr(store, "make_folder", refuse)
    time, said = Time(), list[str]()
    blame(store, time, said).host(failure())
    assert time.now_s == pytest.approx(DELAY_S)
    assert "could not record" in said[0]
