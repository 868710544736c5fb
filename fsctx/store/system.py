"""The system calls that a store makes, one method each or a few that belong together.

This seam is what the simulated filesystem of the tests replaces: everything above it is the real code.
All methods raise `OSError` as the system does.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO


class System:
    """The operating system's own calls."""

    def listdir(self, path: str) -> list[str]:
        """List a folder by a fresh open: other clients' new names are seen."""
        return os.listdir(path)

    def read(self, path: str) -> bytes:
        """Read a file by a fresh open: what other clients closed is seen."""
        with open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        return open(path, "rb")

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        """Create a file that must not exist (O_CREAT|O_EXCL) and write it; durable: fsync(2) before close."""
        with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            _write_all(fd, content)
            if is_durable:
                os.fsync(fd)

    def create_private(self, path: str, content: bytes) -> None:
        """Create a file that must not exist, with mode 0600 from its first moment on, and write it."""
        with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600) as fd:
            _write_all(fd, content)

    def overwrite(self, path: str, content: bytes) -> None:
        """Write over a file from its start by one pwrite(2); close makes it visible to other clients."""
        with _descriptor(path, os.O_WRONLY | os.O_CREAT) as fd:
            os.pwrite(fd, content, 0)

    def append(self, path: str, content: bytes) -> None:
        """Write at the end of a file."""
        with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
            _write_all(fd, content)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what has it."""
        os.replace(source, target)

    def symlink(self, target: str, path: str) -> None:
        """Create a symbolic link, atomic with its content; never replaces."""
        os.symlink(target, path)

    def link(self, source: str, path: str) -> None:
        """Give a file a second name, atomically; never replaces."""
        os.link(source, path)

    def readlink(self, path: str) -> str:
        """Return what a symbolic link points to."""
        return os.readlink(path)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def makedirs(self, path: str) -> None:
        """Create a folder and those above it."""
        os.makedirs(path, exist_ok=True)


@contextlib.contextmanager
def _descriptor(path: str, flags: int, *, mode: int = 0o666) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    os.close(fd)  # an error here is the write's: NFS reports a full disk at close


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
