"""Leaving nothing behind: children that die with their parent, and descendants that are ended with the agent."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEATH_S = 5.0


def dies_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    """Return what a child calls right after the fork, so that it gets a signal when its parent ends. See prctl(2).

    Must be made before the fork, and the fork be done by the parent's main thread: the kernel watches that thread.
    It lasts through exec.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it ended before that
            os._exit(128 + number)

    return in_child


@contextmanager
def nobody_left_behind() -> Iterator[None]:
    """End all processes that are started in this block by this process or its descendants, at its end.

    Those whose parents end become children of this process, so that they are found.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = {child.pid for child in _descendants()}
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        left = [child for child in _descendants() if child.pid not in before]
        for child in left:
            _kill(child)
        psutil.wait_procs(left, timeout=_DEATH_S)  # only then is what they held free
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _kill(child: psutil.Process) -> None:
    try:
        child.kill()
    except psutil.NoSuchProcess:
        return
