"""The folders of a node's cache: what is whole, what is being made, and how one becomes the other."""

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fsctx.cache.chunks import FILES, JOURNAL
from fsctx.cache.layout import FOLDERS, KINDS, Kind, Layout, safe_path
from fsctx.cache.pins import unpinned
from fsctx.cache.root import prepare_root
from fsctx.errors import FsctxError, InputError, NoSpace, StoreError
from fsctx.protocol import codec
from fsctx.protocol.manifest import Context

_FULL = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY = 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A folder of the cache."""

    kind: Kind
    digest: str
    name: str
    """What the context was called when it was planned."""
    size_bytes: int
    files: int
    unused_s: float
    """Seconds since an agent last asked for it."""
    is_whole: bool
    """Else it is being made, or its maker died; then the next one resumes."""
    is_pinned: bool
    """Whether a live process uses it."""


class Folders:
    """The folders under one root. Who makes or removes a digest's folders holds its lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = Layout(root)

    def prepare(self) -> None:
        """Make what all else needs.

        Raises:
            InputError: the root or what it holds cannot be used, or is not ours.
            NoSpace, StoreError: the disk refuses.
        """
        prepare_root(self.root)
        with refusals(self.root):
            for name in FOLDERS:
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
                check_ours(self.root / name)

    def check(self) -> None:
        """Look at a root that stands; make nothing in it. Raises like `prepare`."""
        prepare_root(self.root)
        with refusals(self.root):
            for name in FOLDERS:
                if os.path.lexists(self.root / name):
                    check_ours(self.root / name)

    @contextlib.contextmanager
    def locked(self, path: Path, timeout_s: float = -1) -> Iterator[None]:
        """Hold a lock, which goes with the process that dies.

        Raises:
            Timeout: somebody else holds it for longer than that.
            StoreError: the folder's filesystem gives no locks.
        """
        lock = FileLock(path)
        try:
            lock.acquire(timeout=timeout_s)
        except Timeout:
            raise
        except (OSError, NotImplementedError) as error:
            raise StoreError(f"{self.root} gives no locks ({error}): pass --cache DIR on the node's own disk") from None
        try:
            yield
        finally:
            lock.release()

    def stands(self, kind: Kind, record: Context) -> bool:
        """Tell whether a folder has all files with their sizes; reads none. Symlinks and devices are no files.

        Raises:
            InputError: something in it belongs to another user.
        """
        folder = self.layout.folder(kind, record.digest)
        if not _is_plain(folder):
            return False
        files = [(folder / safe_path(file), file.size_bytes) for file in record.files]
        return all(_is_plain(path, size_bytes) for path, size_bytes in files)

    def touch(self, kind: Kind, digest: str) -> None:
        """Note that a folder was used now."""
        with contextlib.suppress(OSError):
            os.utime(self.layout.folder(kind, digest))

    def finish(self, kind: Kind, record: Context) -> None:
        """Give what was made its name: its files are whole by now, and from here on read-only and durable."""
        new = self.layout.incoming(kind, record.digest) / FILES
        make_durable(new)
        self.remove(kind, record.digest)
        self.write_record(kind, record)
        target = self.layout.folder(kind, record.digest)
        os.rename(new, target)
        sync(target.parent)
        self.discard(kind, record.digest)

    def discard(self, kind: Kind, digest: str) -> None:
        """Remove what was being made."""
        shutil.rmtree(self.layout.incoming(kind, digest), ignore_errors=True)

    def remove(self, kind: Kind, digest: str) -> None:
        """Remove a folder: first its name, so that nobody finds half of it."""
        folder, debris = self.layout.folder(kind, digest), self.layout.incoming(kind, digest) / "debris"
        if os.path.lexists(folder):
            debris.parent.mkdir(mode=0o700, exist_ok=True)
            os.rename(folder, debris)
        if debris.is_symlink():
            debris.unlink()
        shutil.rmtree(debris, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: something is being made there
            debris.parent.rmdir()
        self.layout.record(kind, digest).unlink(missing_ok=True)

    def demote(self, record: Context) -> None:
        """Make of a whole context one that is being fetched, so that only its wrong chunks are fetched again."""
        folder = self.layout.folder("contexts", record.digest)
        incoming = self.layout.incoming("contexts", record.digest)
        self.discard("contexts", record.digest)
        if not folder.is_dir() or not all(_is_plain(path) for path in [folder, *folder.rglob("*")]):
            self.remove("contexts", record.digest)
            return
        for path in folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        incoming.mkdir(mode=0o700)
        n_chunks = sum(len(file.chunks) for file in record.files)
        (incoming / JOURNAL).write_text("".join(f"{number}\n" for number in range(n_chunks)))
        os.rename(folder, incoming / FILES)

    def write_record(self, kind: Kind, record: Context) -> None:
        """Note what a folder should hold."""
        path = self.layout.record(kind, record.digest)
        new = path.with_suffix(".new")
        new.write_bytes(codec.encode(record))
        os.replace(new, path)

    def record(self, kind: Kind, digest: str) -> Context | None:
        """Return what a folder should hold; None if nothing says so."""
        path = self.layout.record(kind, digest)
        try:
            return codec.decode(path.read_bytes(), Context, where=str(path))
        except (OSError, FsctxError):
            return None

    def entries(self) -> list[Entry]:
        """Return what is there, longest unused first."""
        found = [
            self._entry(kind, path.name, path, is_whole=True)
            for kind in KINDS
            for path in self._in(self.root / kind)
            if path.is_dir()
        ]
        for path in self._in(self.root / "incoming"):
            kind_name, _, digest = path.name.partition("-")
            found += [self._entry(kind, digest, path, is_whole=False) for kind in KINDS if kind == kind_name]
        return sorted((entry for entry in found if entry is not None), key=lambda entry: -entry.unused_s)

    @contextlib.contextmanager
    def idle(self, entry: Entry) -> Iterator[bool]:
        """Tell whether nobody uses, makes or removes an entry; if so, nobody begins to until the end of the block."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.locked(self.layout.lock(entry.digest), timeout_s=0))
            except Timeout:
                yield False
                return
            yield held.enter_context(unpinned(self.layout.pin(entry.kind, entry.digest)))

    def evict(self, entry: Entry) -> bool:
        """Remove an entry, unless somebody uses, makes or removes it right now; tell whether it went."""
        with self.idle(entry) as is_idle:
            if is_idle:
                if entry.is_whole:
                    self.remove(entry.kind, entry.digest)
                self.discard(entry.kind, entry.digest)
            return is_idle

    def _entry(self, kind: Kind, digest: str, folder: Path, *, is_whole: bool) -> Entry | None:
        record = self.record(kind, digest)
        try:
            seen = [os.lstat(path) for path in folder.rglob("*")]
            sizes = [one.st_size for one in seen if stat.S_ISREG(one.st_mode)]
            with unpinned(self.layout.pin(kind, digest)) as is_unpinned:
                return Entry(
                    kind=kind,
                    digest=digest,
                    name=record.name if record else "",
                    size_bytes=sum(sizes),
                    files=len(sizes),
                    unused_s=max(0.0, time.time() - folder.stat().st_mtime),
                    is_whole=is_whole,
                    is_pinned=not is_unpinned,
                )
        except FileNotFoundError:  # removed meanwhile
            return None

    def _in(self, folder: Path) -> list[Path]:
        return list(folder.iterdir()) if folder.is_dir() else []


@contextlib.contextmanager
def refusals(folder: Path) -> Iterator[None]:
    """Turn errors of the node's disk into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(
                f"{folder} is full: free some space (`fsctx cache prune`), or pass --cache DIR on another disk"
            ) from None
        raise StoreError(f"{error.filename or folder}: {error.strerror or error}") from None


def check_ours(path: Path) -> os.stat_result:
    """Look at a file or folder of the cache without following links.

    Raises:
        InputError: it belongs to another user.
    """
    seen = os.lstat(path)
    if seen.st_uid != os.geteuid():
        raise InputError(f"{path} belongs to user {seen.st_uid}: remove it, or pass --cache DIR, a folder of your own")
    return seen


def make_durable(folder: Path) -> None:
    """Make a tree's files read-only, and the tree durable."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(_READ_ONLY)
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Make a file or folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_plain(path: Path, size_bytes: int | None = None) -> bool:
    """Tell whether this is our own folder or, of this size if one is given, our own file."""
    try:
        seen = check_ours(path)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(seen.st_mode):
        return size_bytes is None
    return stat.S_ISREG(seen.st_mode) and size_bytes in (None, seen.st_size)
