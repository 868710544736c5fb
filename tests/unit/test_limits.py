import signal

import pytest

from fsctx.agent.leaving import Interrupted, Leaving
from fsctx.agent.limits import Limits
from fsctx.agent.pace import MAX_UNITS, Pace
from fsctx.agent.threads import OsThreads
from fsctx.protocol.orders import Orders


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def leaving(*, baseline: int = 0, deadline_s: float | None = None, clock: Clock | None = None) -> Leaving:
    return Leaving(baseline=baseline, deadline_s=deadline_s, margin_s=10.0, clock=clock or Clock(), threads=OsThreads())


def test_the_first_visit_has_one_unit_and_later_ones_half_of_what_is_held() -> None:
    pace = Pace(unit_rows=10, hold_s=30)
    assert pace.units_wanted() == 1
    assert pace.after(100, 10.0).units_wanted() == 15
    assert pace.after(100_000, 1.0).units_wanted() == MAX_UNITS
    assert pace.after(1, 100.0).units_wanted() == 1


def test_in_a_small_run_a_visit_is_a_share_of_the_run_or_some_seconds_of_work_whichever_is_more() -> None:
    pace = Pace(unit_rows=10, hold_s=30, share=7)
    assert pace.after(100, 10.0).units_wanted() == 7
    assert pace.after(200, 10.0).units_wanted() == 10
    assert pace.after(100_000, 1.0).units_wanted() == MAX_UNITS


def test_the_speed_follows_the_latest_visits() -> None:
    pace = Pace(unit_rows=10, hold_s=30).after(100, 10.0).after(300, 10.0)
    assert pace.rows_per_s == pytest.approx(20.0)
    assert pace.after(0, 1.0) == pace


def test_a_unit_is_begun_only_in_the_time_that_is_left() -> None:
    pace = Pace(unit_rows=100, hold_s=30).after(100, 10.0)
    assert pace.fits(None)
    assert pace.fits(11.0)
    assert not pace.fits(9.0)


def test_a_unit_longer_than_what_is_held_is_begun_and_saved_in_parts() -> None:
    pace = Pace(unit_rows=10_000, hold_s=30).after(100, 10.0)
    assert pace.fits(31.0)
    assert not pace.fits(29.0)


def test_max_units_bounds_visits_and_ends_them() -> None:
    limits = Limits(leaving=leaving(), pace=Pace(unit_rows=1, hold_s=30, rows_per_s=100), max_units=5, n_taken=3)
    assert limits.wanted() == 2
    assert limits.reason() is None
    limits.n_taken = 5
    assert "--max-units 5" in str(limits.reason())


def test_orders_newer_than_the_submission_are_obeyed() -> None:
    old, new = leaving(baseline=3), leaving(baseline=2)
    for one in (old, new):
        one.hear(Orders(stop=0, drain=3))
    assert old.soon is None
    assert new.now is None
    assert new.soon is not None
    new.hear(Orders(stop=4, drain=3))
    assert new.now is not None


def test_the_end_of_the_walltime_is_a_reason_to_save_and_go() -> None:
    clock = Clock()
    one = leaving(deadline_s=100.0, clock=clock)
    assert one.left_s == 90.0
    assert one.now is None
    clock.now_s = 90.0
    assert one.now == "the walltime is over"
    clock.now_s = 95.0
    assert one.since_s == 5.0


def test_a_signal_breaks_off_only_what_may_be_broken_off() -> None:
    one = leaving()
    one.on_signal(signal.SIGTERM, None)
    assert one.now == "SIGTERM was received"
    with pytest.raises(Interrupted), one.interruptible():
        pytest.fail("a block must not begin once there is a reason to go")
    other = leaving()
    with pytest.raises(Interrupted), other.interruptible():
        other.on_signal(signal.SIGINT, None)
