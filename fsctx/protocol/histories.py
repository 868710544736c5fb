"""Reading what agents wrote of themselves: their events, one JSON object a line."""

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from fsctx.errors import Missing
from fsctx.protocol import names
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of an agent's events. What an event does not tell is as the default says."""

    at_s: float
    """On the agent's monotonic clock, since its log began."""
    time: str
    """UTC, ISO 8601, by the agent's own clock; for people, never compared where something is decided."""
    event: str
    seconds: float = 0.0
    """What it took, up to `at_s`."""
    convert_s: float = 0.0
    rows: int = 0
    adopted: int = 0
    """Of `rows`: computed by an earlier holder."""
    unit: int | None = None
    generation: int = 0
    context: str = ""
    """Digest."""
    dtype: str = ""
    reason: str = ""
    error: str = ""

    @property
    def utc_s(self) -> float:
        """`time` in seconds since 1970; 0 where it is no time."""
        with contextlib.suppress(ValueError):
            return datetime.datetime.fromisoformat(self.time).timestamp()
        return 0.0


_DECODER = msgspec.json.Decoder(Event)


def read_events(store: Store, agent: str) -> list[Event]:
    """Read an agent's events in order; none where it wrote none. Lines that are no events are passed over.

    Its last line may be half written, and no reader of these lines decides anything by them.
    """
    try:
        return list(_parse(store.read(names.events(agent))))
    except Missing:
        return []


def _parse(content: bytes) -> Iterator[Event]:
    for line in content.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield _DECODER.decode(line)
