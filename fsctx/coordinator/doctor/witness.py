"""A second process of this host, which looks when it is asked to: `python -m fsctx.coordinator.doctor.witness`.

One question and one answer a line, as JSON. It ends with its standard input, so it never outlives who started it.
"""

import contextlib
import errno
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from fsctx.coordinator.doctor.race import Form, Raced, race
from fsctx.errors import StoreError
from fsctx.store.probing import ProbeSystem


class Witness:
    """The other end of a witness's pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, do: str, **what: Any) -> None:
        """Ask without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"do": do, **what}) + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to the oldest question. Raises the `OSError` that it met."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StoreError("a process that doctor started ended before it answered: run doctor again")
        given = msgspec.json.decode(line)
        if given["error"] is not None:
            raise OSError(*given["error"])
        return given["answer"]

    def lists(self, path: str) -> list[str]:
        """Return what it sees in a folder."""
        self.ask("list", path=path)
        return list(self.answer())

    def reads(self, path: str) -> str | None:
        """Return what it reads in a file; None where it sees none."""
        self.ask("read", path=path)
        found: str | None = self.answer()
        return found

    def raced(self) -> Raced:
        """Wait for what it was told in a race that it was asked into."""
        return msgspec.convert(self.answer(), Raced)


@contextlib.contextmanager
def witnesses(n: int) -> Iterator[list[Witness]]:
    """Start some, and see them end."""
    command = [sys.executable, "-m", __name__]
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(n):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            stack.callback(_end, process)
            started.append(Witness(process))
        for witness in started:  # until all of them are awake: a race of sleepers shows nothing
            witness.reads("/dev/null")
        yield started


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _list(system: ProbeSystem, *, path: str) -> list[str]:
    return system.listdir(path)


def _read(system: ProbeSystem, *, path: str) -> str | None:
    try:
        return system.read(path).decode(errors="replace")
    except FileNotFoundError:
        return None


def _race(system: ProbeSystem, *, folder: str, form: str, me: str, n: int, limit_s: float) -> Raced:
    end_s = time.monotonic() + limit_s
    return race(system, folder, form=Form(form), me=me, numbers=range(n), should_stop=lambda: time.monotonic() > end_s)


def _follow(system: ProbeSystem, *, path: str, size: int, limit_s: float) -> dict[str, int]:
    """Read a file that is replaced again and again; count the reads that saw none, or half of one."""
    counts = {"reads": 0, "missing": 0, "torn": 0}
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        counts["reads"] += 1
        try:
            content = system.read(path)
        except FileNotFoundError:
            counts["missing"] += 1
            continue
        except OSError as error:
            if error.errno != errno.ESTALE:  # NFS and its like: the file is another one by now, so look again
                raise
            continue
        counts["torn"] += len(content) != size or len(set(content)) != 1
    return counts


_ANSWERS: Mapping[str, Callable[..., Any]] = {"list": _list, "read": _read, "race": _race, "follow": _follow}


def main() -> None:
    """Answer until nobody asks any more."""
    system = ProbeSystem()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(system, msgspec.json.decode(line))) + b"\n")
        sys.stdout.buffer.flush()


def _answer(system: ProbeSystem, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": _ANSWERS[asked.pop("do")](system, **asked), "error": None}
    except OSError as error:
        return {"answer": None, "error": [error.errno, error.strerror]}


if __name__ == "__main__":
    main()
