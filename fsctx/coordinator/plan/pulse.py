"""Whether a plan of another host is alive: it rewrites a counter, its pulse, and the watcher's own clock judges."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from fsctx.coordinator.plan.request import Progress
from fsctx.errors import Missing, StoreError
from fsctx.protocol import names
from fsctx.store import Store

BEAT_S = 2.0
SILENCE_S = 60.0
"""A plan that was silent for so long under a watcher's eyes is dead: network filesystems show a beat within seconds."""


@contextlib.contextmanager
def beating(store: Store, token: str) -> Iterator[None]:
    """Show others that this plan is alive, until the block ends."""
    end = threading.Event()
    thread = threading.Thread(target=_beat, args=(store, names.pulse(token), end), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(StoreError):
            store.remove(names.pulse(token))


def is_silent(
    store: Store,
    token: str,
    *,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Watch a plan's pulse; return False as soon as it moves, True after `SILENCE_S` without."""
    first, began_s = _read(store, token), clock()
    while (waited_s := clock() - began_s) < SILENCE_S:
        progress("watching whether another host still plans here", int(waited_s), int(SILENCE_S))
        sleep(BEAT_S)
        if _read(store, token) != first:
            return False
    return True


def _beat(store: Store, name: str, end: threading.Event) -> None:
    counter = 0
    while not end.is_set():
        counter += 1
        with contextlib.suppress(StoreError):  # others see it silent, and `check_ours` tells if they acted on it
            store.rewrite(name, b"%d\n" % counter)
        end.wait(BEAT_S)


def _read(store: Store, token: str) -> bytes:
    try:
        return store.read(names.pulse(token))
    except (Missing, StoreError):
        return b""
