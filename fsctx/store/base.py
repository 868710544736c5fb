"""The storage interface: all that fsctx asks of a shared filesystem.

This class is the specification; every implementation passes tests/contract/test_store.py.
Names are relative to the run folder, with `/`. All methods raise `StoreError` when the
filesystem refuses and nothing is known; `Missing` when a name is not there; `NoSpace` when
disk or quota is full.

What is NOT promised: that a listing is complete while others create names; that a reader
sees a `rewrite` before some seconds have passed.
"""

from pathlib import Path
from typing import BinaryIO, Protocol

TEMPORARY = ".tmp-"
"""Part of every temporary name; listings leave such names out, and NFS's `.nfs*` ones."""


class Store(Protocol):
    """One run folder on a filesystem that several hosts share."""

    root: Path
    """For messages only."""

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, fresh, in no order; temporary names left out. A missing folder has none."""

    def has_folder(self, folder: str) -> bool:
        """Whether a folder is there, by a fresh listing of it."""

    def read(self, name: str) -> bytes:
        """Return the whole content, by a fresh open. MUST see what a writer closed before the call."""

    def open(self, name: str) -> BinaryIO:
        """Open a file that never changes any more, for reading at any position."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a name exclusively. True if it now holds this content, False if somebody else has it.

        MUST be atomic among all hosts. `content` must be unique to the caller and not empty: after an ambiguous
        answer the file is read, and is the caller's only if it holds `content`. `StoreError` says that nothing
        is known: the name may become the caller's yet.
        """

    def create_private(self, name: str, content: bytes) -> bool:
        """Create a name exclusively, as `create` does; nobody but this user can ever read it."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file under a name that only this caller writes; readers see old or new, whole, durable."""

    def rewrite(self, name: str, content: bytes) -> None:
        """Overwrite a file in place from its start, creating it if need be. One writer; readers may see it torn."""

    def append(self, name: str, content: bytes) -> None:
        """Append to a file. One writer."""

    def publish(self, name: str, target: str) -> str:
        """Make `name` stand for the file `target` of the same folder, unless it stands already.

        Returns the target that counts: this one, or the one that was first. Atomic, final, safe to repeat.
        """

    def target(self, name: str) -> str | None:
        """Return what a published name stands for; None if it is not published. Never follow the name itself.

        Raises `Damaged` if something else has that name.
        """

    def remove(self, name: str) -> None:
        """Remove a file; no error if it is gone."""

    def remove_folder(self, name: str) -> None:
        """Make a folder vanish at once, then remove what is in it, files only; no error if it is gone."""

    def make_folder(self, name: str) -> None:
        """Create a folder and those above it; no error if it stands."""
