"""What agents did when: from their events to the fleet's figures."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from fabricate import add_agent, fabricate
from histories import MIDNIGHT, event, tell

from fsctx.coordinator.collect.calibration import Bin, Calibration
from fsctx.coordinator.progress import AgentView
from fsctx.coordinator.report.drawing import WIDTH, reliability, steps, timeline
from fsctx.coordinator.report.fleet import Member, fleet_of
from fsctx.coordinator.report.lives import Kind, Span, life_of
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState
from fsctx.protocol.histories import read_events

BASE_S = MIDNIGHT.timestamp()


def work(began_s=0.0, *, unit=0, generation=0, rows=100, **leased):
    """Events of an agent that loaded and computed for ten seconds, and holds a unit."""
    return [
        event(0.0, "started", began_s=began_s),
        event(5.0, "fetched", began_s=began_s, seconds=2.0, convert_s=1.0),
        event(5.0, "loaded", began_s=began_s, seconds=1.0),
        event(5.0, "warmed_up", began_s=began_s, seconds=0.5),
        event(6.0, "leased", began_s=began_s, unit=unit, generation=generation, rows=rows, **leased),
        event(16.0, "inferred", began_s=began_s, seconds=10.0, rows=50),
    ]


def spans_of(life):
    return [(str(s.kind), round(s.start_s, 3), round(s.end_s, 3)) for s in life.spans]


def view(agent, *, state=AgentState.RUNNING):
    return AgentView(agent=agent, state=state)


def test_what_is_noted_together_is_laid_one_after_the_other():
    life = life_of("a", work(), start_s=0.25)
    assert spans_of(life) == [
        ("start", -0.25, 0.0),
        ("idle", 0.0, 0.5),
        ("fetch", 0.5, 3.5),
        ("load", 3.5, 4.5),
        ("load", 4.5, 5.0),
        ("idle", 5.0, 6.0),
        ("infer", 6.0, 16.0),
    ]


def test_time_is_neither_lost_nor_counted_twice():
    overlapping = [*work(), event(16.5, "inferred", seconds=4.0, rows=1), event(20.0, "left", reason="done")]
    life = life_of("a", overlapping, start_s=1.0)
    assert sum(s.end_s - s.start_s for s in life.spans) == pytest.approx(21.0)
    assert all(a.end_s == b.start_s for a, b in pairwise(life.spans))


def test_a_unit_that_was_published_or_lost_is_held_no_more():
    events = [event(1.0, "leased", unit=u, rows=10, adopted=u, generation=u) for u in range(4)]
    done = [event(2.0, "published", unit=2, generation=2, rows=8), event(3.0, "lost", unit=1, generation=1, rows=9)]
    life = life_of("a", [*events, *done], start_s=0.0)
    assert [lease.unit for lease in life.held] == [0, 3]
    assert life.published == ((BASE_S + 2.0, 10),)  # the two adopted ones among them


def test_an_agent_that_wrote_nothing_has_no_life():
    assert life_of("a", [], start_s=1.0) is None


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    run = fabricate(tmp_path / "run")
    add_agent(run, "a")
    assert read_events(run.store, "a") == []
    tell(run, "a", work()[:2])
    run.store.append(names.events("a"), b'[1]\n\xff\xfe\n\n{"at_s": "soon", "time": "", "event": "x"}\n{"at_s": 9, "ti')
    assert [e.event for e in read_events(run.store, "a")] == ["started", "fetched"]


def test_a_time_that_is_none_is_0():
    assert life_of("a", [event(0.0, "started")], start_s=0.0).start_s == BASE_S
    broken = type(event(0.0, "x"))(at_s=1.0, time="yesterday", event="started")
    assert broken.utc_s == 0.0


def test_the_time_of_an_agent_that_was_killed_is_lost_until_another_takes_its_unit():
    killed = life_of("a", work(), start_s=0.0)
    successor = life_of("b", work(20.0, generation=1, adopted=30), start_s=0.0)  # leases at 26
    fleet = fleet_of([view("a"), view("b")], [killed, successor], beat_s=2.0)
    lost = [span for span in fleet.members[0].spans if span.kind is Kind.LOST]
    assert [(span.start_s, span.end_s) for span in lost] == [(16.0, 26.0)]
    assert fleet.members[0].is_silent
    assert not fleet.members[1].is_silent
    assert fleet.alive == ((0.0, 1), (16.0, 0), (20.0, 1))
    (eviction,) = fleet.evictions
    assert (eviction.agent, eviction.reason, eviction.at_s) == ("a", None, 16.0)
    assert (eviction.units, eviction.rows_held, eviction.rows_adopted) == (1, 100, 30)
    assert eviction.rows_lost == 10  # 5 rows a second, for the beat after which it may have died


def test_an_agent_that_said_why_it_left_saved_what_it_had():
    left = [*work(), event(16.4, "saved", rows=50, unit=0), event(16.5, "left", reason="SIGTERM was received")]
    fleet = fleet_of([view("a", state=AgentState.LEFT)], [life_of("a", left, start_s=0.0)], beat_s=2.0)
    (eviction,) = fleet.evictions
    assert (eviction.reason, eviction.rows_lost) == ("SIGTERM was received", 0)
    assert not fleet.members[0].is_silent


def test_an_agent_at_work_is_not_over():
    fleet = fleet_of([view("a")], [life_of("a", work(), start_s=0.0)], beat_s=2.0)
    assert fleet.evictions == ()
    assert fleet.alive == ((0.0, 1),)


def test_an_agent_that_was_raced_and_goes_on_is_not_over():
    slow = life_of("a", [*work(), event(40.0, "store_error")], start_s=0.0)
    racer = life_of("b", work(20.0, generation=1), start_s=0.0)  # leases at 26
    fleet = fleet_of([view("a"), view("b")], [slow, racer], beat_s=2.0)
    assert fleet.evictions == ()
    assert not fleet.members[0].is_silent


def test_an_agent_known_to_be_dead_is_over_though_nobody_took_its_unit():
    other = life_of("b", [event(0.0, "started"), event(50.0, "left", reason="done")], start_s=0.0)
    fleet = fleet_of([view("a", state="dead")], [life_of("a", work(), start_s=0.0), other], beat_s=2.0)
    assert [eviction.agent for eviction in fleet.evictions] == ["a"]
    assert fleet.members[0].seconds[Kind.LOST] == 34.0


def test_an_agent_that_died_before_it_took_anything_lost_nothing():
    fleet = fleet_of([view("a", state="dead")], [life_of("a", work()[:1], start_s=1.0)], beat_s=2.0)
    assert fleet.members[0].is_silent
    assert fleet.members[0].seconds[Kind.LOST] == 0
    assert fleet.evictions == ()


def test_an_agent_without_events_is_a_member_all_the_same():
    fleet = fleet_of([view("b"), view("a")], [life_of("a", work(), start_s=0.0)], beat_s=2.0)
    assert [member.view.agent for member in fleet.members] == ["a", "b"]


def test_rows_are_summed_in_the_order_of_publication():
    one = life_of("a", [*work(), event(17.0, "published", unit=0, rows=100)], start_s=0.0)
    other = life_of("b", [*work(-5.0, unit=1), event(17.0, "published", unit=1, rows=7)], start_s=0.0)
    fleet = fleet_of([view("a"), view("b")], [one, other], beat_s=1.0)
    assert fleet.rows == ((17.0, 7), (22.0, 107))
    assert fleet.length_s == 22.0


def test_steps_are_drawn_from_the_first_value_to_the_last():
    drawn = steps(((0.0, 2), (5.0, 1), (10.0, 4)), 10.0)
    assert drawn.top == 4
    assert drawn.path.startswith("M0 50")
    assert drawn.path.endswith(f"V0H{WIDTH}")
    assert drawn.samples[0] == (0.0, 2)
    assert drawn.samples[-1] == (10.0, 4)


def test_a_fleet_without_a_length_can_be_drawn():
    assert steps((), 0.0).path == f"M0 100H{WIDTH}"
    assert timeline(Member(view=view("a"), origin_s=math.inf, spans=(), is_silent=False), 0.0) == {}


def test_a_timeline_shows_in_each_column_what_took_most_of_it():
    spans = [
        Span(kind=Kind.LOAD, start_s=0.0, end_s=50.0),
        Span(kind=Kind.INFER, start_s=50.0, end_s=99.9),
        Span(kind=Kind.IDLE, start_s=99.9, end_s=100.0),
    ]
    member = Member(view=view("a"), origin_s=0.0, spans=tuple(spans), is_silent=False)
    assert timeline(replace(member, origin_s=50.0), 200.0) == {Kind.LOAD: "M100 5h100", Kind.INFER: "M200 5h100"}
    assert timeline(member, 100.0) == {Kind.LOAD: "M0 5h200", Kind.INFER: "M200 5h200"}


def test_a_bin_of_few_rows_is_a_small_point_of_the_reliability_curve():
    bins = (
        Bin(low=0.4, high=0.5, rows=1, confidence=0.42, accuracy=1.0),
        Bin(low=0.9, high=1.0, rows=900, confidence=0.9, accuracy=0.5),
    )
    path, points = reliability(Calibration(rows=901, ece=0.4, confidence=0.9, accuracy=0.5, bins=bins))
    assert path == "M42 0L90 50"
    assert points == [(42, 0, 1.1), (90, 50, 4)]
