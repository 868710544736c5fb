"""Judging another agent by its session, on the watcher's own monotonic clock. Pure.

No clock of another machine is read (law 5), and an agent whose heartbeat moved within the
time to live is never judged dead (law 7).
"""

from dataclasses import dataclass, replace

from fsctx.protocol.agents import AgentState, Session

FRESH = 6
"""A look counts for a sixth of the time to live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an owner may be silent."""

    ttl_s: float
    stall_s: float
    """How long the progress of a running agent may stand still while its heart beats."""
    race_factor: float = 3.0
    """A live holder that keeps a unit for so many times what it takes here is raced; 0 is never."""
    race_from_s: float = 10.0
    """… but not before it was watched for so long."""


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
    if now_s - watch.looked_s > patience.ttl_s / FRESH:
        return False
    has_no_beat = watch.looked_s - watch.counter_since_s >= patience.ttl_s
    return has_no_beat or watch.looked_s - watch.progress_since_s >= patience.stall_s
