"""Faults at named points: a store's system calls of which one ends or freezes the process.

A point is `CALL PART N WHEN [ACTION]`: at the N-th call of a kind whose path (or, of a session, content) contains
PART, `before` it, `within` it (half of the content is written) or `after` it, the process gets SIGKILL (`kill`, if
nothing is said) or SIGSTOP (`stop`):

    symlink results/ 2 before          two results were published, the third one's file is whole but not published
    overwrite "left" 1 within          the session that says goodbye is torn
    rename partial/ 1 after stop       frozen when the first partial has its name
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

from fsctx.store.system import System

When = Literal["before", "within", "after"]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One point, and what happens there."""

    call: str
    part: str
    number: int
    when: When
    signal: signal.Signals


def parse_fault(text: str) -> Fault:
    """Read a point as the module describes it."""
    call, part, number, when, *action = text.split()
    kind = SIGNALS[action[0] if action else "kill"]
    return Fault(call=call, part=part, number=int(number), when=cast("When", when), signal=kind)


class FaultySystem(System):
    """The operating system's calls; the process does not survive, or sleeps at, one of them."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._seen = 0

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        """See `System.create`."""
        with self._point("create", path, lambda: super(FaultySystem, self).create(path, b"", is_durable=False)):
            super().create(path, content, is_durable=is_durable)

    def overwrite(self, path: str, content: bytes) -> None:
        """See `System.overwrite`."""
        half = content[: len(content) // 40]  # sessions are mostly padding
        with self._point(
            "overwrite", f"{path} {content.decode()}", lambda: super(FaultySystem, self).overwrite(path, half)
        ):
            super().overwrite(path, content)

    def append(self, path: str, content: bytes) -> None:
        """See `System.append`."""
        half = content[: len(content) // 2]
        with self._point("append", path, lambda: super(FaultySystem, self).append(path, half)):
            super().append(path, content)

    def rename(self, source: str, target: str) -> None:
        """See `System.rename`."""
        with self._point("rename", target):
            super().rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        """See `System.symlink`."""
        with self._point("symlink", path):
            super().symlink(target, path)

    def unlink(self, path: str) -> None:
        """See `System.unlink`."""
        with self._point("unlink", path):
            super().unlink(path)

    def rmdir(self, path: str) -> None:
        """See `System.rmdir`."""
        with self._point("rmdir", path):
            super().rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """See `System.listdir`."""
        with self._point("listdir", path):
            return super().listdir(path)

    @contextmanager
    def _point(self, call: str, path: str, do_half: Callable[[], None] | None = None) -> Iterator[None]:
        is_here = self._is_here(call, path)
        if is_here and self._fault.when == "within":
            assert do_half is not None, f"{call} has no middle"
            do_half()
        if is_here and self._fault.when != "after":
            os.kill(os.getpid(), self._fault.signal)
        yield
        if is_here and self._fault.when == "after":
            os.kill(os.getpid(), self._fault.signal)

    def _is_here(self, call: str, path: str) -> bool:
        if call != self._fault.call or self._fault.part not in path:
            return False
        self._seen += 1
        return self._seen == self._fault.number
