"""How two doctors find each other: one waits in a folder and shows that it lives, the other joins it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fsctx.coordinator.doctor.line import Line
from fsctx.coordinator.doctor.meeting import Meeting, Seat, meet
from fsctx.errors import Missing, NotComplete
from fsctx.store import PosixStore
from fsctx.store.system import System

SCRATCH = "fsctx-doctor-"
"""Begins the name of the folder that a doctor works in."""

_WAITING = "waiting"
_JOINED = "joined"
_BEAT_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchman:
    """Time, as those who wait are given it."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_for_peer(
    system: System, folder: str, *, wait_s: float, progress: Callable[[str], None], time: Watchman
) -> Meeting | None:
    """Wait in a folder for another host's doctor, and meet it; None if none came in time.

    Raises:
        NotComplete: one came and fell silent.
    """
    store, end_s, number = PosixStore(Path(folder), system=system), time.clock() + wait_s, 0
    while _JOINED not in store.list(""):
        if time.clock() >= end_s:
            return None
        number += 1
        store.rewrite(_WAITING, b"%016d" % number)
        time.sleep(_BEAT_S)
    line = Line(store=store, side="a", other="the second host's doctor", clock=time.clock, sleep=time.sleep)
    return meet(Seat(line=line, system=system, folder=folder, progress=progress))


def join(
    system: System, root: Path, *, wait_s: float, token: str, progress: Callable[[str], None], time: Watchman
) -> Meeting:
    """Find the doctor that waits in `root`, and meet it.

    Raises:
        NotComplete: none waits there, or it fell silent.
    """
    end_s, signs = time.clock() + wait_s, dict[str, bytes]()
    while True:
        for name in sorted(PosixStore(root, system=system).list("")):
            store = PosixStore(root / name, system=system)
            if name.startswith(SCRATCH) and _lives(store, signs) and store.create(_JOINED, token.encode()):
                line = Line(store=store, side="b", other="the first doctor", clock=time.clock, sleep=time.sleep)
                return meet(Seat(line=line, system=system, folder=str(store.root), progress=progress))
        if time.clock() >= end_s:
            raise NotComplete(
                f"no doctor waits in {root} (looked for {wait_s:g} s): start one on the other host first, "
                f"`fsctx doctor {root} --wait 300`"
            )
        time.sleep(_BEAT_S)


def _lives(store: PosixStore, signs: dict[str, bytes]) -> bool:
    """Whether a doctor waits here for somebody: its sign changed since the last look, and nobody joined."""
    try:
        sign = store.read(_WAITING)
    except Missing:
        return False
    before = signs.setdefault(str(store.root), sign)
    return sign != before and _JOINED not in store.list("")
