"""The system calls that `fsctx doctor` makes besides those of a store."""

import os
import shutil
from dataclasses import dataclass

from fsctx.store.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free on a filesystem for those who are not root."""

    free_bytes: int
    free_inodes: int | None
    """None where the filesystem does not count them."""


class ProbeSystem(System):
    """The operating system's own calls, with those that look at a mount."""

    def make_folder(self, path: str) -> None:
        """Create a folder that must not exist."""
        os.mkdir(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(path)

    def owner(self, path: str) -> int:
        """Return the number of the user that a file belongs to."""
        return os.lstat(path).st_uid

    def modified_s(self, path: str) -> float:
        """Return when a file was last modified, by whatever clock stamps files here."""
        return os.lstat(path).st_mtime

    def room(self, path: str) -> Room:
        """Return what is free."""
        seen = os.statvfs(path)
        return Room(free_bytes=seen.f_bavail * seen.f_frsize, free_inodes=seen.f_favail if seen.f_files else None)
