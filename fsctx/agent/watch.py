"""Judging another agent by its session, on the watcher's own monotonic clock. Pure.

No clock of another machine is read (law 5), and an agent whose heartbeat moved within the
time to live is never judged dead (law 7).
"""

from dataclasses import dataclass, replace

from fsctx.protocol.agents import AgentState, Session

FRESH = 6
"""A look counts for a sixth of the time to live."""

HUSHED = 3
"""In a third of the time to live a heart beats twice."""

JUST_AFTER_S = 0.05
"""The look that finds an owner silent for so long comes so much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an owner may be silent."""

    ttl_s: float
    stall_s: float
    """How long the progress of a running agent may stand still while its heart beats."""
    race_factor: float = 3.0
    """A live holder that keeps a unit for so many times what it takes here is raced; 0 is never.

    One that missed two beats is raced when it keeps the unit for longer than it takes here.
    """
    race_from_s: float = 10.0
    """A live holder is not raced before it was seen to keep the unit for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a watcher remembers of an owner. Times are the watcher's monotonic seconds."""

    counter: int | None
    counter_since_s: float
    progress: int | None
    progress_since_s: float
    looked_s: float


def begin(session: Session | None, now_s: float) -> Watch:
    """Begin to watch."""
    return Watch(
        counter=session.counter if session else None,
        counter_since_s=now_s,
        progress=session.progress if session else None,
        progress_since_s=now_s,
        looked_s=now_s,
    )


def look(watch: Watch | None, session: Session | None, now_s: float, patience: Patience) -> Watch:
    """Return what is remembered after one more look; `session` is None where there was none to read.

    A watcher that did not look for half the time to live begins again: it may have been frozen
    together with the owner.
    """
    if watch is None or now_s - watch.looked_s > patience.ttl_s / 2:
        return begin(session, now_s)
    seen = replace(watch, looked_s=now_s)
    if session is not None and session.counter != watch.counter:
        seen = replace(seen, counter=session.counter, counter_since_s=now_s)
    if session is not None and (session.progress != watch.progress or session.state != AgentState.RUNNING):
        seen = replace(seen, progress=session.progress, progress_since_s=now_s)
    return seen


def is_silent(watch: Watch, now_s: float, patience: Patience) -> bool:
    """Whether a watched owner said nothing, or got nothing done, for too long.

    Not where the last look is long ago: it may have woken since.
    """
    return is_fresh(watch, now_s, patience) and was_silent(watch, patience)


def is_hushed(watch: Watch, now_s: float, patience: Patience) -> bool:
    """Whether a watched owner missed two beats: it may live, but nobody should wait for it with nothing else to do."""
    has_missed = watch.looked_s - watch.counter_since_s >= patience.ttl_s / HUSHED
    return has_missed and is_fresh(watch, now_s, patience)


def telling_s(watch: Watch, patience: Patience) -> float:
    """Return when the next look at an owner that was found silent tells more than the last one."""
    silences_s = (patience.ttl_s / HUSHED, patience.ttl_s)
    ends_s = (watch.counter_since_s + silence_s + JUST_AFTER_S for silence_s in silences_s)
    return min((end_s for end_s in ends_s if watch.counter_since_s < watch.looked_s < end_s), default=float("inf"))


def was_silent(watch: Watch, patience: Patience) -> bool:
    """Whether an owner was silent for too long at the last look, however long ago that is."""
    has_no_beat = watch.looked_s - watch.counter_since_s >= patience.ttl_s
    return has_no_beat or watch.looked_s - watch.progress_since_s >= patience.stall_s


def is_fresh(watch: Watch, now_s: float, patience: Patience) -> bool:
    """Whether the last look still counts."""
    return now_s - watch.looked_s <= patience.ttl_s / FRESH
