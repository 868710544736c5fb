"""Events of agents that never ran, written as agents write them."""

import datetime
import json
from dataclasses import asdict
from typing import Any

from fabricate import FabricatedRun

from fsctx.protocol import names
from fsctx.protocol.histories import Event

MIDNIGHT = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


def event(at_s: float, kind: str, *, began_s: float = 0.0, **fields: Any) -> Event:
    """Return an event of an agent whose log began so many seconds after midnight."""
    time = MIDNIGHT + datetime.timedelta(seconds=began_s + at_s)
    return Event(at_s=at_s, time=time.isoformat(timespec="milliseconds"), event=kind, **fields)


def tell(run: FabricatedRun, agent: str, events: list[Event]) -> None:
    """Write an agent's events."""
    lines = ({field: value for field, value in asdict(e).items() if value is not None} for e in events)
    run.store.append(names.events(agent), "".join(json.dumps(line) + "\n" for line in lines).encode())
