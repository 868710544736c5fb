"""What an agent did when, from its events. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fsctx.protocol.histories import Event


class Kind(StrEnum):
    """What an agent's time goes into."""

    START = "start"
    FETCH = "fetch"
    LOAD = "load"
    INFER = "infer"
    IDLE = "idle"
    LOST = "lost"
    """From the last sign of an agent that ended without a word, until another took a unit of its over."""


_LASTING = {"fetched": Kind.FETCH, "loaded": Kind.LOAD, "warmed_up": Kind.LOAD, "inferred": Kind.INFER}
"""Events that tell how long something took, once it is over."""

_CLOSING = ("published", "lost", "unit_failed")
"""Events after which an agent does not hold the unit any more."""

_SAFE = ("loaded", "warmed_up", "inferred", "published", "lost", "saved")
"""Events after which an agent has little that is computed and not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of an agent's time, in seconds since its log began."""

    kind: Kind
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A lease that an agent took."""

    at_s: float
    unit: int
    generation: int
    rows: int
    adopted: int
    """Of `rows`: computed and saved by earlier holders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """An agent's time in the run. Seconds are since 1970, by the agent's clock when it started, but for its spans."""

    agent: str
    origin_s: float
    """When its log began."""
    start_s: float
    end_s: float
    """Of its last event."""
    spans: tuple[Span, ...]
    """In order, without gaps and overlaps."""
    published: tuple[tuple[float, int], ...]
    """When, and how many rows, adopted ones among them."""
    taken: tuple[Taken, ...]
    held: tuple[Taken, ...]
    """What it took and never finished."""
    rows_per_s: float
    """While it inferred; 0 where it never finished a visit."""
    safe_s: float
    """When it wrote rows last, or began to compute: nothing older was lost with it."""
    left: str | None
    """Why it left; None where it did not say, so it is at work or was killed."""


def life_of(agent: str, events: Sequence[Event], *, start_s: float) -> Life | None:
    """Return an agent's life; None where it wrote nothing. `start_s`: how long it took until its log began."""
    if not events:
        return None
    origin_s = events[0].utc_s - events[0].at_s
    end_s = max(event.at_s for event in events)
    left = [event.reason for event in events if event.event == "left"]
    taken = tuple(_taken(events, origin_s))
    closed = {(event.unit, event.generation) for event in events if event.event in _CLOSING}
    return Life(
        agent=agent,
        origin_s=origin_s,
        start_s=origin_s - start_s,
        end_s=origin_s + end_s,
        spans=tuple(_filled(_lasting(events), -start_s, end_s)),
        published=tuple(_published(events, taken, origin_s)),
        taken=taken,
        held=tuple(lease for lease in taken if (lease.unit, lease.generation) not in closed),
        rows_per_s=_rows_per_s(events),
        safe_s=origin_s + max((event.at_s for event in events if event.event in _SAFE), default=0.0),
        left=left[-1] if left else None,
    )


def _lasting(events: Sequence[Event]) -> list[Span]:
    """Return what lasted, in order.

    An agent notes fetch, load and warm-up together when all are over: going backwards, each ends where the next began.
    """
    spans: list[Span] = []
    limit_s = float("inf")
    for event in reversed(events):
        kind = _LASTING.get(event.event)
        if kind is not None:
            end_s = min(event.at_s, limit_s)
            limit_s = end_s - event.seconds - event.convert_s
            spans.append(Span(kind=kind, start_s=limit_s, end_s=end_s))
    return spans[::-1]


def _filled(spans: Sequence[Span], start_s: float, end_s: float) -> Iterator[Span]:
    """Yield spans, and idle time between them; the start is what lies before the log."""
    at_s = start_s
    first = Span(kind=Kind.START, start_s=start_s, end_s=0.0)
    last = Span(kind=Kind.IDLE, start_s=end_s, end_s=end_s)
    for span in (first, *spans, last):
        begin_s, finish_s = max(at_s, span.start_s), max(at_s, span.end_s)
        for kind, one_s, other_s in ((Kind.IDLE, at_s, begin_s), (span.kind, begin_s, finish_s)):
            if other_s > one_s:
                yield Span(kind=kind, start_s=one_s, end_s=other_s)
        at_s = finish_s


def _taken(events: Sequence[Event], origin_s: float) -> Iterator[Taken]:
    for event in events:
        if event.event == "leased" and event.unit is not None:
            yield Taken(
                at_s=origin_s + event.at_s,
                unit=event.unit,
                generation=event.generation,
                rows=event.rows,
                adopted=event.adopted,
            )


def _published(events: Sequence[Event], taken: Sequence[Taken], origin_s: float) -> Iterator[tuple[float, int]]:
    adopted = {(lease.unit, lease.generation): lease.adopted for lease in taken}
    for event in events:
        if event.event == "published" and event.unit is not None:
            yield origin_s + event.at_s, event.rows + adopted.get((event.unit, event.generation), 0)


def _rows_per_s(events: Sequence[Event]) -> float:
    visits = [event for event in events if event.event == "inferred"]
    seconds = sum(event.seconds for event in visits)
    return sum(event.rows for event in visits) / seconds if seconds else 0.0
