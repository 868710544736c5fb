"""What two hosts find out together. Both walk through the same steps; `a` keeps the results.

hello      who is there
ping pong  new names and their content, and the clocks on the walls
content    a file rewritten in place, as a heartbeat is
absent     a name that was looked up before it was made
race       for the same names, in batches, both beginning together
owners     what each sees of the race afterwards
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fsctx.coordinator.doctor import deduce
from fsctx.coordinator.doctor.findings import Finding, Level
from fsctx.coordinator.doctor.line import Line, Side, Word
from fsctx.coordinator.doctor.race import Form, Raced, Trial, judge, owners, race
from fsctx.errors import Missing, StoreError
from fsctx.protocol.processes import boot_id, host_name
from fsctx.store.system import System

ROUNDS = 5
BATCHES = {Form.CREATE: 6, Form.SYMLINK: 3, Form.LINK: 3}
BATCH_NAMES = 400
ABSENT_LIMIT_S = 40.0
"""So long is waited for a name to appear that was absent before."""

BEAT_BYTES = 8192
_LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """How far the other's clock is ahead, give or take `error_s`."""

    ahead_s: float
    error_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What came out of it."""

    peer: str
    is_same_host: bool
    listing_s: float
    """A new name: the longest time until the other had seen it and answered with one."""
    content_s: float
    """A rewritten file: likewise."""
    absent_s: float | None
    """Until a name could be opened that was absent when it was last looked up; None: longer than `ABSENT_LIMIT_S`."""
    offset: Offset
    trials: dict[Form, Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One doctor's place at the meeting."""

    line: Line
    system: System
    folder: str
    batch_names: int = BATCH_NAMES
    """Names of a batch; the same on both sides."""
    wall: Callable[[], float] = time.time
    progress: Callable[[str], None] = lambda step: None

    @property
    def side(self) -> Side:
        """Which of the two this is."""
        return self.line.side


def meet(seat: Seat) -> Meeting:
    """Walk through all steps and return what was found; both sides do, `b` with clocks seen from its side.

    Raises:
        NotComplete: the other fell silent.
        StoreError: the filesystem refused.
    """
    _rewrite(seat, 0)
    hello = seat.line.exchange(Word(step="hello", host=host_name(), boot_id=boot_id()))
    seat.progress(f"meeting {hello.host}")
    listing_s, offset = _ping(seat)
    content_s = _rewrites(seat)
    seat.progress("an absent name")
    absent_s = _absent(seat)
    trials = {}
    for form in Form:
        seat.progress(f"race with {hello.host}: {form}")
        trials[form] = _race(seat, form)
    seat.line.part()
    return Meeting(
        peer=hello.host,
        is_same_host=hello.boot_id.split("/")[0] == boot_id().split("/")[0],
        listing_s=listing_s,
        content_s=content_s,
        absent_s=absent_s,
        offset=offset,
        trials=trials,
    )


def _ping(seat: Seat) -> tuple[float, Offset]:
    """Send words to and fro; return the slowest round, and the clocks' difference by the fastest one."""
    line, rounds = seat.line, []
    for _ in range(ROUNDS):
        if seat.side == "b":
            line.hear("ping")
        began_s, mine_s = line.clock(), seat.wall()
        line.say(Word(step="ping", wall_s=mine_s))
        if seat.side == "b":
            continue
        theirs = line.hear("ping")
        seconds = line.clock() - began_s
        rounds.append((seconds, theirs.wall_s - mine_s - seconds / 2))
    if seat.side == "b":
        told = line.hear("pinged")
        return told.seconds or 0.0, Offset(ahead_s=0.0, error_s=0.0)
    slowest_s, (fastest_s, ahead_s) = max(rounds)[0], min(rounds)
    line.say(Word(step="pinged", seconds=slowest_s))
    return slowest_s, Offset(ahead_s=ahead_s, error_s=fastest_s / 2)


def _rewrites(seat: Seat) -> float:
    """Rewrite a file each, in turns; return the slowest round."""
    slowest_s, other = 0.0, "b.beat" if seat.side == "a" else "a.beat"
    for number in range(1, ROUNDS + 1):
        began_s = seat.line.clock()
        if seat.side == "a":
            _rewrite(seat, number)
        seat.line.until(lambda number=number: _beat(seat, other) >= number, "waiting for a beat")  # type: ignore[misc]
        if seat.side == "b":
            _rewrite(seat, number)
        slowest_s = max(slowest_s, seat.line.clock() - began_s)
    return slowest_s


def _rewrite(seat: Seat, number: int) -> None:
    seat.line.store.rewrite(f"{seat.side}.beat", b"%d " % number + b" " * (BEAT_BYTES - 8))


def _beat(seat: Seat, name: str) -> int:
    try:
        return int(seat.line.store.read(name).split()[0])
    except (Missing, IndexError, ValueError):  # IndexError, ValueError: read while it was written
        return -1


def _absent(seat: Seat) -> float | None:
    """Let `b` look a name up that `a` then makes; return how long `b` went on not seeing it."""
    line, store = seat.line, seat.line.store
    if seat.side == "a":
        line.hear("absent")
        store.create(_LATE, b"made")
        line.say(Word(step="made"))
        return line.hear("seen").seconds
    _is_there(seat)
    line.say(Word(step="absent"))
    line.hear("made")
    seconds = line.watch(lambda: _is_there(seat), ABSENT_LIMIT_S)
    line.say(Word(step="seen", seconds=seconds))
    return seconds


def _is_there(seat: Seat) -> bool:
    try:
        return bool(seat.line.store.read(_LATE))
    except StoreError:
        return False


def _race(seat: Seat, form: Form) -> Trial:
    """Race for names, batch by batch, so that neither runs ahead; compare what was told and what is seen."""
    folder, line = f"{seat.folder}/race-{form}", seat.line
    line.store.make_folder(f"race-{form}")
    won: list[int] = []
    failed, error = 0, ""
    for batch in range(BATCHES[form]):
        line.exchange(Word(step=f"ready for {form} {batch}"))
        numbers = range(batch * seat.batch_names, (batch + 1) * seat.batch_names)
        part = race(seat.system, folder, form=form, me=seat.side, numbers=numbers, should_stop=lambda: False)
        won += part.won
        failed, error = failed + part.failed, error or part.error
    n_names = BATCHES[form] * seat.batch_names
    mine = Raced(me=seat.side, tried=n_names, won=tuple(won), failed=failed, error=error)
    told = line.exchange(Word(step="raced", won=mine.won, failed=failed, error=error))
    theirs = Raced(
        me="b" if seat.side == "a" else "a", tried=n_names, won=told.won, failed=told.failed, error=told.error
    )
    seen = owners(seat.system, folder, form, n_names)
    other = line.exchange(Word(step="owners", owners=seen))
    return judge(form, sorted((mine, theirs), key=lambda raced: raced.me), [seen, other.owners])


def told(meeting: Meeting) -> tuple[Finding, ...]:
    """Say what two hosts found."""
    races = (deduce.raced(trial, by="hosts") for trial in meeting.trials.values())
    where = "this host: what follows says nothing of other hosts" if meeting.is_same_host else meeting.peer
    limit = f"not opened within {ABSENT_LIMIT_S:g} s of its making"
    absent = limit if meeting.absent_s is None else f"opened {_s(meeting.absent_s)} after it was made"
    return (
        _note("second host", where),
        _note("new name, two hosts", f"seen and answered within {_s(meeting.listing_s)}"),
        _note("content, two hosts", f"seen and answered within {_s(meeting.content_s)}"),
        _note("absent name, two hosts", f"{absent} (fsctx never relies on that)"),
        _note("clock, two hosts", _clocks(meeting.offset)),
        *races,
    )


def _clocks(offset: Offset) -> str:
    """Nothing is decided by clocks: it is told for those who read logs."""
    if abs(offset.ahead_s) <= offset.error_s:
        return f"equal, give or take {_s(offset.error_s)}"
    which = "ahead" if offset.ahead_s > 0 else "behind"
    return f"the second host's is {_s(abs(offset.ahead_s))} {which}, give or take {_s(offset.error_s)}"


def _note(check: str, seen: str) -> Finding:
    return Finding(check=check, level=Level.NOTE, seen=seen)


def _s(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
