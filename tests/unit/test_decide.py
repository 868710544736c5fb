from dataclasses import replace

import pytest

from fsctx.agent.decide import FINISHED, FINISHED_OWN, IDLE, Action, Inspect, Leave, Look, Situation, Take, Wait, decide
from fsctx.protocol.names import LeaseId

NOTHING = Situation(
    leave=None,
    free=(),
    bucket=None,
    orphans=(),
    doubted=(),
    watched=(),
    is_finished=False,
    is_idle_too_long=False,
    wanted=2,
    wait_s=0.5,
)
FREE = tuple(LeaseId(unit, 0) for unit in range(5))
ORPHANS = (LeaseId(7, 3),)


@pytest.mark.parametrize(
    ("known", "action"),
    [
        ({}, Wait(0.5)),
        ({"watched": ORPHANS}, Inspect(ORPHANS)),
        ({"watched": ORPHANS, "is_idle_too_long": True}, Leave(IDLE)),
        ({"watched": ORPHANS, "is_finished": True}, Leave(FINISHED)),
        ({"is_finished": True, "refuses_some": True}, Leave(FINISHED_OWN)),
        ({"is_finished": True, "orphans": ORPHANS}, Take(ORPHANS, is_takeover=True)),
        ({"orphans": ORPHANS, "bucket": 3}, Look(3)),
        ({"orphans": ORPHANS, "free": FREE}, Take(ORPHANS, is_takeover=True)),
        ({"doubted": ORPHANS, "free": FREE}, Inspect(ORPHANS)),
        ({"doubted": ORPHANS, "bucket": 3}, Look(3)),
        ({"watched": ORPHANS, "free": FREE}, Take(FREE[:2], is_takeover=False)),
        ({"free": FREE, "leave": "told to"}, Leave("told to")),
    ],
)
def test_looks_come_first_then_orphans_then_free_units_then_watching_then_waiting(
    known: dict[str, object], action: Action
) -> None:
    assert decide(replace(NOTHING, **known)) == action  # type: ignore[arg-type]
