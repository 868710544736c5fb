"""A store on a mounted filesystem, with the system calls that were measured to be safe on shared ones."""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from fsctx.errors import Missing, NoSpace, StoreError
from fsctx.store.base import TEMPORARY

Result = TypeVar("Result")

_TRIES = 4
_LOOK_AGAIN = {errno.ESTALE}
"""NFS: the file was replaced on the server; the same path again finds the new one."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}


class PosixStore:
    """The run folder at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self, folder: str) -> list[str]:
        """See `Store.list`."""
        try:
            found = _attempt(folder, lambda: os.listdir(self.root / folder))
        except Missing:
            return []
        return [name for name in found if TEMPORARY not in name and not name.startswith(".nfs")]

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        return _attempt(name, (self.root / name).read_bytes)

    def open(self, name: str) -> BinaryIO:
        """See `Store.open`."""
        return _attempt(name, lambda: open(self.root / name, "rb"))

    def create(self, name: str, content: bytes) -> bool:
        """See `Store.create`: open(2) with O_CREAT|O_EXCL; the answer alone decides nothing after an error."""
        try:
            with _mapped(name):
                _write_new(self.root / name, content)
            return True
        except (NoSpace, Missing):
            raise
        except StoreError as error:
            return self._holds(name, content, error)

    def _holds(self, name: str, content: bytes, error: StoreError) -> bool:
        """Tell who has a name whose creation failed: the reply may be lost and the file ours all the same."""
        try:
            return self.read(name) == content
        except Missing:
            raise error from None

    def replace(self, name: str, content: bytes) -> None:
        """See `Store.replace`: temporary name in the same folder, fsync, rename."""
        path = self.root / name
        temporary = path.with_name(f"{path.name}{TEMPORARY}{secrets.token_hex(4)}")
        with _mapped(name):
            try:
                _write_new(temporary, content, is_durable=True)
                os.replace(temporary, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def rewrite(self, name: str, content: bytes) -> None:
        """See `Store.rewrite`: one pwrite(2); close makes it visible to other clients."""
        with _mapped(name), _descriptor(self.root / name, os.O_WRONLY | os.O_CREAT) as fd:
            os.pwrite(fd, content, 0)

    def append(self, name: str, content: bytes) -> None:
        """See `Store.append`."""
        with _mapped(name), _descriptor(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
            _write_all(fd, content)

    def publish(self, name: str, target: str) -> str:
        """See `Store.publish`: symlink(2) is atomic with its content and never replaces; readlink tells who won."""
        try:
            with _mapped(name):
                os.symlink(target, self.root / name)
            return target
        except NoSpace:
            raise
        except StoreError as error:
            winner = self.target(name)
            if winner is None:
                raise error from None
            return winner

    def target(self, name: str) -> str | None:
        """See `Store.target`."""
        try:
            return _attempt(name, lambda: os.readlink(self.root / name))
        except Missing:
            return None

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        with contextlib.suppress(Missing):
            _attempt(name, lambda: os.unlink(self.root / name))

    def make_folder(self, name: str) -> None:
        """See `Store.make_folder`."""
        _attempt(name, lambda: os.makedirs(self.root / name, exist_ok=True))


@contextlib.contextmanager
def _mapped(name: str) -> Iterator[None]:
    """Turn the system's errors into ours: the one place that does."""
    try:
        yield
    except OSError as error:
        raise _map(name, error) from None


def _map(name: str, error: OSError) -> StoreError:
    seen = f"{name}: {error.strerror or error}"
    if error.errno in _ABSENT:
        return Missing(seen)
    if error.errno in _FULL:
        return NoSpace(f"{seen}: free some space (or raise the quota), then run the same command again")
    return StoreError(seen)


def _attempt(name: str, call: Callable[[], Result]) -> Result:
    """Make a call that may be repeated; a stale handle is looked up again."""
    with _mapped(name):
        for _ in range(_TRIES - 1):
            try:
                return call()
            except OSError as error:
                if error.errno not in _LOOK_AGAIN:
                    raise
        return call()


@contextlib.contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    os.close(fd)  # an error here is the write's: NFS reports a full disk at close


def _write_new(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        _write_all(fd, content)
        if is_durable:
            os.fsync(fd)


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
