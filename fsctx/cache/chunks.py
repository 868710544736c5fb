"""A context in chunks: one that is being fetched, what a node can serve, and what brings the chunks.

A chunk is up to `chunk_bytes` of one file. Its number is its place in `chunks_of(context)`; bit n of a bitmap
(`bitmap[n // 8] >> n % 8 & 1`) is chunk n.
"""

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsctx.cache.layout import Layout, safe_path
from fsctx.errors import Damaged, StoreError, WrongBytes
from fsctx.protocol.manifest import Context

FILES, JOURNAL = "files", "journal"
"""What an incoming context's folder holds: its files, and the numbers of the chunks that are in them, one a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a context."""

    sha256: str
    size_bytes: int
    file: int
    """Number of its file in the context."""
    offset: int
    """Where it is in that file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a chunk's bytes are on this node. The file may be gone or have moved when it is opened: ask again."""

    path: Path
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a fetch moved: bytes by source, `origin` or `peer`."""

    bytes_by_source: dict[str, int]


def chunks_of(context: Context) -> tuple[Chunk, ...]:
    """Return a context's chunks in order.

    Raises:
        Damaged: the record contradicts itself.
    """
    step, found = context.chunk_bytes, []
    for number, file in enumerate(context.files):
        offsets = range(0, file.size_bytes, step) if step > 0 else range(0)
        if file.size_bytes < 0 or len(offsets) != len(file.chunks):
            raise Damaged(
                f"the record of the context {context.digest[:12]} gives {file.path} {file.size_bytes} bytes and"
                f" {len(file.chunks)} chunks, which contradict each other: plan the run again"
            )
        found += [
            Chunk(sha256=sha256, size_bytes=min(step, file.size_bytes - offset), file=number, offset=offset)
            for sha256, offset in zip(file.chunks, offsets, strict=True)
        ]
    return tuple(found)


class Incoming:
    """A context that is being fetched into a folder, chunk by chunk. Thread-safe.

    The caller holds the context's lock. Opening it again after a death resumes: chunks that the journal names are
    read and compared with their hashes, as a machine that went down may have lost their bytes.
    """

    def __init__(self, context: Context, folder: Path) -> None:
        """Open or make the folder and preallocate the files.

        Raises:
            Damaged: the record is.
            OSError: the disk refuses, with ENOSPC if the context has no room there.
        """
        self.context = context
        self.chunks = chunks_of(context)
        self._numbers = {chunk: number for number, chunk in enumerate(self.chunks)}
        self._lock = threading.Condition()
        self._n_writing = 0
        self._is_closed = False
        self._held: set[int] = set()
        self._files: list[int] = []
        (folder / FILES).mkdir(mode=0o700, parents=True, exist_ok=True)
        noted = noted_in(folder / JOURNAL, len(self.chunks))
        self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            for file in context.files:
                self._files.append(_preallocated(folder / FILES / safe_path(file), file.size_bytes))
            self._resume(sorted(noted))
        except BaseException:
            self.close()
            raise

    def missing(self) -> list[Chunk]:
        """Return the chunks that are not here yet, in order."""
        with self._lock:
            return [chunk for number, chunk in enumerate(self.chunks) if number not in self._held]

    def holds(self, sha256: str) -> bool:
        """Tell whether a chunk with this hash is here."""
        with self._lock:
            return any(self.chunks[number].sha256 == sha256 for number in self._held)

    def put(self, chunk: Chunk, data: bytes | bytearray | memoryview) -> None:
        """Take a chunk in. Again is harmless.

        Raises:
            WrongBytes: the bytes are not that chunk's; nothing was written.
        StoreError: the fetch has ended.
            OSError: the disk refuses; the cache makes ours of it.
        """
        if len(data) != chunk.size_bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
            raise WrongBytes(f"{len(data)} bytes came for the chunk {chunk.sha256[:12]} that are not its own")
        number, view, done = self._numbers[chunk], memoryview(data), 0
        with self._writing():
            while done < len(view):
                done += os.pwrite(self._files[chunk.file], view[done:], chunk.offset + done)
            self._note(number)

    def close(self) -> None:
        """Close the files, after what is being written; what is here stays. Who puts later is told (StoreError)."""
        with self._lock:
            self._is_closed = True
            self._lock.wait_for(lambda: self._n_writing == 0)
        for file in [self._journal, *self._files]:
            os.close(file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep the files open: a late thread would else write into a file that got the same descriptor since."""
        with self._lock:
            if self._is_closed:
                raise StoreError(f"the fetch of {self.context.name} has ended")
            self._n_writing += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_writing -= 1
                self._lock.notify_all()

    def _resume(self, noted: Iterable[int]) -> None:
        for number in noted:
            chunk = self.chunks[number]
            data = os.pread(self._files[chunk.file], chunk.size_bytes, chunk.offset)
            if hashlib.sha256(data).hexdigest() == chunk.sha256:
                self._note(number)

    def _note(self, number: int) -> None:
        with self._lock:
            if number not in self._held:
                os.write(self._journal, b"%d\n" % number)
                self._held.add(number)


Bring = Callable[[Incoming], Brought]
"""Puts all missing chunks into an incoming context, from wherever it likes, or raises; then the next one resumes."""


class Shelf:
    """What this node can serve of some contexts: whole ones, and those that any process here is still fetching."""

    def __init__(self, root: Path, contexts: Iterable[Context]) -> None:
        self._layout = Layout(root)
        self._contexts: Mapping[str, Context] = {context.digest: context for context in contexts}
        self._chunks = {digest: chunks_of(context) for digest, context in self._contexts.items()}
        self._where: dict[str, list[tuple[str, int]]] = {}
        for digest, chunks in self._chunks.items():
            for number, chunk in enumerate(chunks):
                self._where.setdefault(chunk.sha256, []).append((digest, number))

    def place(self, sha256: str) -> Place | None:
        """Return where a chunk's bytes are; None if it is not of these contexts, or not here."""
        found = (self._place(digest, number) for digest, number in self._where.get(sha256, ()))
        return next((place for place in found if place is not None), None)

    def held(self, digest: str) -> bytes:
        """Return the bitmap of a context's chunks that are here."""
        chunks = self._chunks[digest]
        if self._layout.folder("contexts", digest).is_dir():
            return bitmap(range(len(chunks)), len(chunks))
        return bitmap(self._noted(digest), len(chunks))

    def _place(self, digest: str, number: int) -> Place | None:
        chunk = self._chunks[digest][number]
        path = safe_path(self._contexts[digest].files[chunk.file])
        whole = self._layout.folder("contexts", digest) / path
        if _is_file_of(whole, chunk.offset + chunk.size_bytes):
            return Place(path=whole, offset=chunk.offset, size_bytes=chunk.size_bytes)
        if number not in self._noted(digest):
            return None
        half = self._layout.incoming("contexts", digest) / FILES / path
        return Place(path=half, offset=chunk.offset, size_bytes=chunk.size_bytes)

    def _noted(self, digest: str) -> set[int]:
        return noted_in(self._layout.incoming("contexts", digest) / JOURNAL, len(self._chunks[digest]))


def bitmap(numbers: Iterable[int], n_chunks: int) -> bytes:
    """Return the bitmap with these chunks set."""
    bits = bytearray((n_chunks + 7) // 8)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return bytes(bits)


def numbers_in(bits: bytes, n_chunks: int) -> set[int]:
    """Return the chunks that a bitmap has set; bits that it lacks or has too many count as not set."""
    return {number for number in range(min(n_chunks, 8 * len(bits))) if bits[number // 8] >> number % 8 & 1}


def noted_in(journal: Path, n_chunks: int) -> set[int]:
    """Return the chunks that a journal names; none if there is no journal. A line without its end does not count."""
    try:
        lines = journal.read_bytes().split(b"\n")[:-1]
    except OSError:
        return set()
    return {int(line) for line in lines if line.isdigit() and int(line) < n_chunks}


def _preallocated(path: Path, size_bytes: int) -> int:
    """Open or make a file of this size whose room is taken already; a symlink in its place is refused."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.ftruncate(fd, size_bytes)
        if size_bytes:
            os.posix_fallocate(fd, 0, size_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_file_of(path: Path, size_bytes: int) -> bool:
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size >= size_bytes
