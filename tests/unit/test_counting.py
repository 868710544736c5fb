"""Counting the calls to the filesystem, and keeping them under a budget."""

import inspect
import threading
from pathlib import Path

import pytest

from fsctx.store import PosixStore
from fsctx.store.counting import BURST_S, Budget, CountingSystem, Meter
from fsctx.store.system import System


class FakeClock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def budget(per_s: float, clock: FakeClock) -> Budget:
    return Budget(per_s, wait=clock.wait, clock=clock)


def calls_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_every_call_of_a_system_is_counted() -> None:
    own = {name for name in vars(CountingSystem) if not name.startswith("_")}
    assert calls_of(System) <= own


def test_calls_are_counted_by_kind_whether_they_succeed_or_not(tmp_path: Path) -> None:
    system = CountingSystem(System(), Meter())
    store = PosixStore(tmp_path, system=system)
    store.create("a", b"x")
    store.replace("b", b"x")
    store.publish("c", "b")
    assert (store.list(""), store.target("none")) != ([], "")
    assert system.meter.by_kind() == {"create": 2, "rename": 1, "symlink": 1, "listdir": 1, "readlink": 1}
    assert system.meter.read()[0] == 6


def test_many_threads_lose_no_call() -> None:
    meter = Meter()
    threads = [threading.Thread(target=lambda: [meter.count("read") for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.by_kind() == {"read": 8000}


def test_the_rate_is_of_about_the_last_minute() -> None:
    clock = FakeClock()
    meter = Meter(clock=clock)
    rates = []
    for second in range(0, 300, 10):
        for _ in range(100 if second < 100 else 0):
            meter.count("read")
        clock.wait(10)
        rates.append(meter.read()[1])
    assert rates[:10] == pytest.approx([10.0] * 10)
    assert 0 < rates[12] < 10
    assert rates[17:] == [0.0] * 13
    assert meter.read() == (1000, 0.0)


def test_no_time_gives_no_rate() -> None:
    assert Meter(clock=FakeClock()).read() == (0, 0.0)


def test_a_budget_is_kept_by_waiting() -> None:
    clock = FakeClock()
    kept, began_s = budget(50, clock), clock.now_s
    for _ in range(500):
        kept.spend()
    assert clock.now_s - began_s == pytest.approx(500 / 50 - BURST_S, abs=0.03)


def test_what_was_not_spent_for_long_is_saved_up_for_a_second_only() -> None:
    clock = FakeClock()
    kept = budget(50, clock)
    clock.wait(1000)
    began_s = clock.now_s
    for _ in range(100):
        kept.spend()
    assert clock.now_s - began_s == pytest.approx(100 / 50 - BURST_S, abs=0.03)


def test_threads_together_keep_one_budget() -> None:
    clock = FakeClock()
    waits: list[float] = []
    kept = Budget(10, wait=waits.append, clock=clock)
    threads = [threading.Thread(target=lambda: [kept.spend() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(waits) == pytest.approx(99 / 10 - BURST_S)
    assert len(set(waits)) == len(waits)


def test_a_limited_system_waits_before_each_call(tmp_path: Path) -> None:
    clock = FakeClock()
    system = CountingSystem(System(), Meter(clock=clock))
    store = PosixStore(tmp_path, system=system)
    store.list("")
    assert clock.now_s == 100.0
    system.limit(budget(2, clock))
    for _ in range(12):
        store.list("")
    assert clock.now_s == pytest.approx(100 + 12 / 2 - BURST_S, abs=0.6)
    assert system.meter.read()[0] == 13
