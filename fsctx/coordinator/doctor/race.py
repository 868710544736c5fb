"""Many try to get the same names at once: what each was told, and what stands there afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fsctx.errors import Damaged, StoreError
from fsctx.store import PosixStore
from fsctx.store.base import TEMPORARY
from fsctx.store.system import System


class Form(StrEnum):
    """A way to get a name that must never replace."""

    CREATE = "create"
    SYMLINK = "symlink"
    LINK = "link"


NOBODY = ""
"""Owner of a name that is missing, empty or unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """What one racer was told."""

    me: str
    tried: int
    """Numbers below this were tried."""
    won: tuple[int, ...] = ()
    failed: int = 0
    """Tries that ended with an error other than "it is there"."""
    error: str = ""
    """The first such error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a race showed."""

    form: Form
    n_racers: int
    n_names: int
    doubles: int = 0
    """Names that several were told to have won."""
    misled: int = 0
    """Names whose only winner, as told, is not their owner."""
    orphans: int = 0
    """Names that nobody owns."""
    differences: int = 0
    """Names that hold one owner for one host and another for the other."""
    unseen: int = 0
    """Names that have an owner whom one host does not see yet: it remembers the file as it was, empty."""
    failed: int = 0
    error: str = ""
    largest_share: float = 0.0
    """Of the names: what the luckiest racer got. Near 1 there was no race."""

    @property
    def is_supported(self) -> bool:
        """Whether the filesystem knows this way at all."""
        return self.n_names > self.orphans or not self.error

    @property
    def is_sound(self) -> bool:
        """Whether every name had one winner at most, and everybody knows it."""
        return self.is_supported and not (self.doubles or self.misled or self.differences)


def name_of(folder: str, number: int) -> str:
    """Return the path that is raced for."""
    return f"{folder}/{number:06d}"


def race(system: System, folder: str, *, form: Form, me: str, numbers: range, should_stop: Callable[[], bool]) -> Raced:
    """Try to get names in order, until there is no more time."""
    won, failed, error, tried = [], 0, "", numbers.start
    for number in numbers:
        if should_stop():
            break
        tried = number + 1
        try:
            attempt(system, form, name_of(folder, number), me)
            won.append(number)
        except FileExistsError:
            pass
        except OSError as seen:
            failed, error = failed + 1, error or (seen.strerror or str(seen))
    return Raced(me=me, tried=tried, won=tuple(won), failed=failed, error=error)


def attempt(system: System, form: Form, path: str, me: str) -> None:
    """Try to get one name, as stores do. Raises `FileExistsError` where somebody has it."""
    match form:
        case Form.CREATE:
            system.create(path, me.encode(), is_durable=False)
        case Form.SYMLINK:
            system.symlink(me, path)
        case Form.LINK:
            private = f"{path}{TEMPORARY}{me}"
            system.create(private, me.encode(), is_durable=False)
            try:
                system.link(private, path)
            finally:
                system.unlink(private)


def owners(system: System, folder: str, form: Form, n_names: int) -> tuple[str, ...]:
    """Return who owns each name."""
    return tuple(_owner(system, form, name_of(folder, number)) for number in range(n_names))


def judge(form: Form, raced: Sequence[Raced], views: Sequence[Sequence[str]]) -> Trial:
    """Compare what racers were told with what stands there, as each host (`views`) sees it."""
    n_names = min(len(view) for view in views)
    told: list[list[str]] = [[] for _ in range(n_names)]
    for racer in raced:
        for number in racer.won:
            if number < n_names:
                told[number].append(racer.me)
    seen = [{view[i] for view in views} for i in range(n_names)]
    held = [sorted(names - {NOBODY}) for names in seen]
    return Trial(
        form=form,
        n_racers=len(raced),
        n_names=n_names,
        doubles=sum(len(winners) > 1 for winners in told),
        misled=sum(len(winners) == 1 and bool(held[i]) and winners != held[i] for i, winners in enumerate(told)),
        orphans=sum(not names for names in held),
        differences=sum(len(names) > 1 for names in held),
        unseen=sum(NOBODY in names and len(names) > 1 for names in seen),
        failed=sum(racer.failed for racer in raced),
        error=next((racer.error for racer in raced if racer.error), ""),
        largest_share=max(sum(names == [racer.me] for names in held) for racer in raced) / max(n_names, 1),
    )


def _owner(system: System, form: Form, path: str) -> str:
    store, name = PosixStore(Path(path).parent, system=system), Path(path).name  # it looks stale handles up again
    try:
        return store.target(name) or NOBODY if form is Form.SYMLINK else store.read(name).decode(errors="replace")
    except (StoreError, Damaged):
        return NOBODY
