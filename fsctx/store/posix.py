"""A store on a mounted filesystem, with the system calls that were measured to be safe on shared ones."""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from fsctx.errors import Damaged, Forbidden, Missing, NoSpace, StoreError
from fsctx.store.base import TEMPORARY
from fsctx.store.system import System

Result = TypeVar("Result")

_TRIES = 4
_LOOK_AGAIN = {errno.ESTALE}
"""NFS: the file was replaced on the server; the same path again finds the new one."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}
_NO_SYMLINK = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}
"""readlink(2) of what is no symlink: a run that publishes by records, or a filesystem that has no symlinks."""

_ARROW = b"-> "
"""Begins the record that a name stands for, where it is no symlink: `-> target` and a newline."""

PublishForm = Literal["symlink", "link"]
"""How a name is published: as a symlink, or, where the filesystem has none, as a record that link(2) gives its name."""


class PosixStore:
    """The run folder at `root`. Publishes by `form`; one that publishes by symlink reads what was published by any."""

    def __init__(self, root: Path, *, system: System | None = None, form: PublishForm = "symlink") -> None:
        self.root = root
        self._system = system or System()
        self._form = form

    def publishing_by(self, form: PublishForm) -> "PosixStore":
        """Return this store, publishing by a form."""
        return PosixStore(self.root, system=self._system, form=form)

    def list(self, folder: str) -> list[str]:
        """See `Store.list`."""
        try:
            found = self._repeatable(folder, self._system.listdir)
        except Missing:
            return []
        return [name for name in found if TEMPORARY not in name and not name.startswith(".nfs")]

    def has_folder(self, folder: str) -> bool:
        """See `Store.has_folder`."""
        try:
            self._repeatable(folder, self._system.listdir)
        except Missing:
            return False
        return True

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        return self._repeatable(name, self._system.read)

    def open(self, name: str) -> BinaryIO:
        """See `Store.open`."""
        return self._repeatable(name, self._system.open)

    def create(self, name: str, content: bytes) -> bool:
        """See `Store.create`: open(2) with O_CREAT|O_EXCL; after an error, what stands there tells."""
        return self._create(name, content, lambda path: self._system.create(path, content, is_durable=False))

    def create_private(self, name: str, content: bytes) -> bool:
        """See `Store.create_private`."""
        return self._create(name, content, lambda path: self._system.create_private(path, content))

    def _create(self, name: str, content: bytes, call: Callable[[str], None]) -> bool:
        try:
            call(self._path(name))
        except FileExistsError:  # a lost reply may have created it: then it is empty, and nobody's
            return self._content(name) == content
        except OSError as error:
            return self._holds(name, content, _mapped(self._path(name), error))
        return True

    def _holds(self, name: str, content: bytes, error: StoreError) -> bool:
        """Tell who has a name whose creation failed. An empty file tells nothing: our content may be on its way."""
        found = None if isinstance(error, Missing | NoSpace) else self._content(name)
        if not found:
            raise error from None
        return found == content

    def _content(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except Missing:
            return None

    def replace(self, name: str, content: bytes) -> None:
        """See `Store.replace`: temporary name in the same folder, fsync, rename."""
        temporary = f"{name}{TEMPORARY}{secrets.token_hex(4)}"
        try:
            self._once(temporary, lambda path: self._system.create(path, content, is_durable=True))
            self._rename(temporary, name, content)
        except StoreError:
            with contextlib.suppress(StoreError):
                self.remove(temporary)
            raise

    def _rename(self, temporary: str, name: str, content: bytes) -> None:
        """Give a whole file its name. An error tells nothing (rename(2), BUGS): what has the name now tells."""
        try:
            self._once(name, lambda path: self._system.rename(self._path(temporary), path))
        except StoreError as error:
            if self._content(name) != content:
                raise error from None

    def rewrite(self, name: str, content: bytes) -> None:
        """See `Store.rewrite`."""
        self._repeatable(name, lambda path: self._system.overwrite(path, content))

    def append(self, name: str, content: bytes) -> None:
        """See `Store.append`."""
        self._once(name, lambda path: self._system.append(path, content))

    def publish(self, name: str, target: str) -> str:
        """See `Store.publish`: by the form that was planned; what stands there afterwards tells who won."""
        return self._publish_link(name, target) if self._form == "link" else self._publish_symlink(name, target)

    def _publish_symlink(self, name: str, target: str) -> str:
        """Publish by symlink(2): atomic with its content, never replaces; readlink tells who won."""
        try:
            self._once(name, lambda path: self._system.symlink(target, path))
        except NoSpace:
            raise
        except StoreError as error:
            winner = self.target(name)
            if winner is None:
                raise error from None
            return winner
        return target

    def _publish_link(self, name: str, target: str) -> str:
        """Publish by link(2): a whole record under a private name, given the public name; atomic, never replaces.

        Read back even after success: where two were told that they won, both still go by what stands there.
        """
        temporary = f"{name}{TEMPORARY}{secrets.token_hex(4)}"
        lost = StoreError(f"{name}: created, and not there")
        try:
            self._once(temporary, lambda path: self._system.create(path, _record(target), is_durable=True))
            self._once(name, lambda path: self._system.link(self._path(temporary), path))
        except NoSpace:
            raise
        except StoreError as error:
            lost = error
        finally:
            with contextlib.suppress(StoreError):
                self.remove(temporary)
        winner = self.target(name)
        if winner is None:
            raise lost from None
        return winner

    def target(self, name: str) -> str | None:
        """See `Store.target`: what the symlink points to, or the record says."""
        try:
            if self._form == "symlink":
                with contextlib.suppress(_NoSymlink):
                    return self._repeatable(name, self._readlink)
            return _recorded(name, self.read(name))
        except Missing:
            return None

    def _readlink(self, path: str) -> str:
        try:
            return self._system.readlink(path)
        except OSError as error:
            if error.errno in _NO_SYMLINK:
                raise _NoSymlink from None
            raise

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        with contextlib.suppress(Missing):
            self._repeatable(name, self._system.unlink)

    def remove_folder(self, name: str) -> None:
        """See `Store.remove_folder`: rename(2) takes the whole folder out of sight."""
        gone = f"{name}{TEMPORARY}{secrets.token_hex(4)}"
        with contextlib.suppress(Missing):
            self._once(name, lambda path: self._system.rename(path, self._path(gone)))
        with contextlib.suppress(Missing):
            for file in self._repeatable(gone, self._system.listdir):
                self.remove(f"{gone}/{file}")
            self._repeatable(gone, self._system.rmdir)

    def make_folder(self, name: str) -> None:
        """See `Store.make_folder`."""
        self._repeatable(name, self._system.makedirs)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _once(self, name: str, call: Callable[[str], Result]) -> Result:
        """Make a call, turning the system's errors into ours: the one place that does."""
        try:
            return call(self._path(name))
        except OSError as error:
            raise _mapped(self._path(name), error) from None

    def _repeatable(self, name: str, call: Callable[[str], Result]) -> Result:
        """Make a call that may be repeated; a stale handle is looked up again."""
        for _ in range(_TRIES - 1):
            try:
                return call(self._path(name))
            except OSError as error:
                if error.errno not in _LOOK_AGAIN:
                    raise _mapped(self._path(name), error) from None
        return self._once(name, call)


class _NoSymlink(Exception):
    """The name is there and is no symlink."""


def _record(target: str) -> bytes:
    return _ARROW + os.fsencode(target) + b"\n"


def _recorded(name: str, content: bytes) -> str:
    if not (content.startswith(_ARROW) and content.endswith(b"\n")):
        raise Damaged(f"{name} is neither a symlink nor the record of one: remove it")
    return os.fsdecode(content[len(_ARROW) : -1])


def _mapped(name: str, error: OSError) -> StoreError:
    seen = f"{name}: {error.strerror or error}"
    if error.errno in _ABSENT:
        return Missing(seen)
    if error.errno in _FULL:
        return NoSpace(f"{seen}: free some space (or raise the quota), then run the same command again")
    if error.errno in _FORBIDDEN:
        return Forbidden(f"{seen}: check whose it is, its mode and its mount, then run the same command again")
    return StoreError(seen)
