"""The cache's folders: what is there, what gets in, what goes out.

ROOT/contexts/<digest>/       a context's files, whole and checked before the folder got its name
ROOT/converted/<digest>/      the safetensors folder made of a GGUF context
ROOT/records/<kind>-<digest>.json   sizes and chunk hashes of either
ROOT/incoming/<kind>-<digest>.*     being made; debris of a killed process until the next one comes
ROOT/locks/<digest>           one process of the node at a time makes or removes a digest's folders
"""

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from fsctx.cache.copying import copy_context, describe, full_disk, has_sizes, problem_with, sync_folders
from fsctx.cache.root import prepare_root
from fsctx.errors import Damaged, FsctxError, StoreError
from fsctx.protocol import codec
from fsctx.protocol.manifest import Context

Kind = Literal["contexts", "converted"]
KINDS: tuple[Kind, ...] = ("contexts", "converted")
_DIGEST = re.compile(r"[0-9A-Za-z_-]{1,128}")
_CONVERTED_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Where a context's files are: a folder, or the file itself where there is only one by its kind (GGUF)."""

    path: Path
    source: Literal["node", "origin"]
    seconds: float
    bytes: int
    """Copied now."""


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


class NodeCache:
    """The cache in the folder `root`, shared by all processes of one user on the node."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fetch(self, context: Context, origin: Path | None = None) -> Fetched:
        """Bring a context's files to the node, unless they are here; one process of the node copies.

        Raises:
            InputError: the cache's folder cannot be used.
            Unfit, Damaged, NoSpace: see `copy_context`.
        """
        began_s = time.monotonic()
        if context.kind == "fake":
            return Fetched(path=self.root, source="node", seconds=0.0, bytes=0)
        folder = self._folder("contexts", context.digest)
        copied = 0
        if not self._stands("contexts", context):
            with self._locked(context.digest):
                if not self._stands("contexts", context):
                    self._make(
                        "contexts", context, lambda new: copy_context(context, origin or Path(context.origin), new)
                    )
                    copied = context.size_bytes
        self._touch(folder)
        path = folder / context.files[0].path if context.kind == "gguf" else folder
        return Fetched(
            path=path, source="origin" if copied else "node", seconds=time.monotonic() - began_s, bytes=copied
        )

    def converted(self, context: Context, convert: Callable[[Path, Path], None]) -> Path:
        """Return the folder made of a GGUF context by `convert(file, new_folder)`; made once per node.

        `convert` must check what it made before it returns. Its errors pass through and leave nothing behind.
        """
        folder = self._folder("converted", context.digest)
        if not self._is_converted(context.digest):
            source = self.fetch(context).path
            with self._locked(context.digest):
                if not self._is_converted(context.digest):
                    self._make("converted", context, lambda new: _convert(convert, source, new))
        self._touch(folder)
        return folder

    def entries(self) -> list[Entry]:
        """Return what is in the cache, longest unused first."""
        found = [self._entry(kind, digest) for kind in KINDS for digest in self._digests(kind)]
        return sorted(found, key=lambda entry: -entry.unused_s)

    def verify(self) -> dict[str, list[str]]:
        """Read everything and return what is wrong, by folder; a sound folder has an empty list."""
        return {f"{kind}/{digest}": self._problems(kind, digest) for kind in KINDS for digest in self._digests(kind)}

    def prune(self, *, unused_s: float = 0.0, digests: frozenset[str] | None = None) -> list[Entry]:
        """Remove folders unused for so long (of these digests alone, if given), and all debris; return what went.

        What another process is making or removing right now is left alone.
        """
        gone: list[Entry] = []
        for entry in self.entries():
            if entry.unused_s >= unused_s and (digests is None or entry.digest in digests):
                with contextlib.suppress(Timeout), self._locked(entry.digest, timeout_s=0):
                    self._remove(entry.kind, entry.digest)
                    gone.append(entry)
        for digest in {_digest_of(path.name) for path in self._in("incoming")}:
            with contextlib.suppress(Timeout), self._locked(digest, timeout_s=0):
                self._clean(digest)
        return gone

    def _make(self, kind: Kind, context: Context, fill: Callable[[Path], None]) -> None:
        """Make a folder under a temporary name and give it its own: whole or not at all. The lock is held."""
        digest = context.digest
        self._clean(digest)
        self._remove(kind, digest)
        new = self.root / "incoming" / f"{kind}-{digest}.{secrets.token_hex(4)}"
        try:
            fill(new)
            with full_disk(new):
                self._write_record(kind, context, new)
                os.rename(new, self._folder(kind, digest))
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _write_record(self, kind: Kind, context: Context, folder: Path) -> None:
        files, chunk_bytes = context.files, context.chunk_bytes
        if kind == "converted":
            files, chunk_bytes = describe(folder, _CONVERTED_CHUNK_BYTES), _CONVERTED_CHUNK_BYTES
        record = Context(
            digest=context.digest,
            kind=context.kind,
            name=context.name,
            origin=context.origin,
            files=files,
            chunk_bytes=chunk_bytes,
        )
        self._record_path(kind, context.digest).write_bytes(codec.encode(record))

    def _stands(self, kind: Kind, context: Context) -> bool:
        return has_sizes(context, self._folder(kind, context.digest))

    def _is_converted(self, digest: str) -> bool:
        record = self._record("converted", digest)
        return record is not None and self._stands("converted", record)

    def _record(self, kind: Kind, digest: str) -> Context | None:
        path = self._record_path(kind, digest)
        try:
            return codec.decode(path.read_bytes(), Context, where=str(path))
        except (OSError, FsctxError):
            return None

    def _problems(self, kind: Kind, digest: str) -> list[str]:
        record, folder = self._record(kind, digest), self._folder(kind, digest)
        if record is None:
            return [f"{folder} has no record of what it should hold"]
        found = (problem_with(file, folder, record.chunk_bytes) for file in record.files)
        return [problem for problem in found if problem is not None]

    def _entry(self, kind: Kind, digest: str) -> Entry:
        folder, record = self._folder(kind, digest), self._record(kind, digest)
        files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return Entry(
            kind=kind,
            digest=digest,
            name=record.name if record else "",
            size_bytes=sum(files),
            files=len(files),
            unused_s=max(0.0, time.time() - folder.stat().st_mtime),
        )

    def _remove(self, kind: Kind, digest: str) -> None:
        """Remove a folder: first its name, so that nobody finds half of it."""
        folder = self._folder(kind, digest)
        if folder.exists():
            debris = self.root / "incoming" / f"{kind}-{digest}.{secrets.token_hex(4)}"
            os.rename(folder, debris)
            shutil.rmtree(debris, ignore_errors=True)
        self._record_path(kind, digest).unlink(missing_ok=True)

    def _clean(self, digest: str) -> None:
        for path in self._in("incoming"):
            if _digest_of(path.name) == digest:
                shutil.rmtree(path, ignore_errors=True)

    def _folder(self, kind: Kind, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise Damaged(f"a context has the digest {digest!r}, which is none: plan the run again")
        return self.root / kind / digest

    def _record_path(self, kind: Kind, digest: str) -> Path:
        return self.root / "records" / f"{kind}-{digest}.json"

    def _digests(self, kind: Kind) -> list[str]:
        return sorted(path.name for path in self._in(kind) if path.is_dir())

    def _in(self, name: str) -> list[Path]:
        folder = self.root / name
        return list(folder.iterdir()) if folder.is_dir() else []

    def _touch(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # removed by a prune meanwhile: the reader will say so
            os.utime(folder)

    @contextlib.contextmanager
    def _locked(self, digest: str, timeout_s: float = -1) -> Iterator[None]:
        """Hold a digest's lock; a lock of the kernel, which goes with the process that dies."""
        prepare_root(self.root)
        with full_disk(self.root):
            for name in (*KINDS, "records", "incoming", "locks"):
                (self.root / name).mkdir(exist_ok=True)
        lock = FileLock(self.root / "locks" / digest)
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


def _convert(convert: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    with full_disk(target):
        convert(source, target)
        sync_folders(target)


def _digest_of(name: str) -> str:
    """Return the digest of a name in `incoming`."""
    return name.partition("-")[2].rpartition(".")[0]
