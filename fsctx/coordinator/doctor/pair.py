"""Two doctors that were started alike: who comes first waits, the other one joins."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from fsctx.coordinator.doctor.joining import SCRATCH
from fsctx.errors import InputError
from fsctx.store import PosixStore


@contextlib.contextmanager
def is_first(root: Path, pair: str) -> Iterator[bool]:
    """Give whether this is the first of a pair to come to a folder. Its mark is gone when it leaves.

    Raises:
        InputError: there is no such folder.
    """
    if not root.is_dir():
        raise InputError(f"{root} is no folder: pass the run whose filesystem is to be looked at")
    store, mark = PosixStore(root), f"{SCRATCH}{pair}.first"
    is_mine = store.create(mark, secrets.token_bytes(8))
    try:
        yield is_mine
    finally:
        if is_mine:
            store.remove(mark)
