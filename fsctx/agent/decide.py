"""What to do next, as a pure function of what is known. It knows no clock, disk or chance."""

from dataclasses import dataclass

from fsctx.protocol.names import LeaseId


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What an agent that wants work knows."""

    leave: str | None
    """Why it must not begin anything any more, in words."""
    free: tuple[LeaseId, ...]
    """Leases that nobody took when last looked, best first."""
    bucket: int | None
    """The next bucket worth a look before anything less wanted is taken."""
    orphans: tuple[LeaseId, ...]
    """Next generations of leases whose holders are gone."""
    doubted: tuple[LeaseId, ...]
    """Leases whose holders seem to be gone: one more look at them tells."""
    watched: tuple[LeaseId, ...]
    """Leases whose holders are due for a look."""
    is_finished: bool
    """Whether every unit that this agent could do is done or failed."""
    is_idle_too_long: bool
    wanted: int
    """How many units to take, at least 1."""
    wait_s: float
    """How long to wait where there is nothing to do."""
    refuses_some: bool = False
    """Whether there are tasks that this agent leaves to others."""


@dataclass(frozen=True, slots=True)
class Take:
    """Try to create these leases."""

    leases: tuple[LeaseId, ...]
    is_takeover: bool


@dataclass(frozen=True, slots=True)
class Look:
    """List a bucket."""

    bucket: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """Read the sessions of the holders of these leases."""

    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Leave:
    """End, for this reason."""

    reason: str


Action = Take | Look | Inspect | Wait | Leave

FINISHED = "every unit is done"
FINISHED_OWN = "every unit that can be done here is done"
IDLE = "idle for longer than --idle-exit"


def decide(now: Situation) -> Action:
    """Choose: a look for free units where none are known, then orphans, free units, watching, waiting."""
    if now.leave is not None:
        return Leave(now.leave)
    if now.bucket is not None:
        return Look(now.bucket)
    return _work(now) or _rest(now)


def _work(now: Situation) -> Action | None:
    if now.orphans:
        return Take(now.orphans[: now.wanted], is_takeover=True)
    if now.doubted:
        return Inspect(now.doubted)
    return Take(now.free[: now.wanted], is_takeover=False) if now.free else None


def _rest(now: Situation) -> Action:
    if now.is_finished:
        return Leave(FINISHED_OWN if now.refuses_some else FINISHED)
    if now.is_idle_too_long:
        return Leave(IDLE)
    if now.watched:
        return Inspect(now.watched)
    return Wait(now.wait_s)
