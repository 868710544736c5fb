"""The origin of a context: the folder on the shared filesystem that it was planned from."""

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fsctx.cache.chunks import Brought, Chunk, Incoming
from fsctx.cache.hashing import describe
from fsctx.cache.layout import safe_path
from fsctx.errors import Damaged, StoreError, Unfit, WrongBytes
from fsctx.protocol.manifest import ADAPTER, Context, ModelFile

_WRITERS = 2
_MOST_WAITING = 3
"""So many chunks may be in memory, read and not yet checked and written."""


def from_origin(incoming: Incoming) -> Brought:
    """Bring what is missing from the origin alone: each file from its start to its end, checked and written meanwhile.

    Raises:
        Unfit: the origin cannot be seen from this node.
        Damaged: a file is not what it was when the run was planned.
    """
    context, n_bytes = incoming.context, 0
    check_sizes(context)
    waiting: deque[tuple[Chunk, Future[None]]] = deque()
    with ThreadPoolExecutor(_WRITERS) as writers:
        for chunk in incoming.missing():
            data = read_chunk(context, chunk)
            waiting.append((chunk, writers.submit(incoming.put, chunk, data)))
            n_bytes += len(data)
            if len(waiting) >= _MOST_WAITING:
                _finish(context, *waiting.popleft())
        while waiting:
            _finish(context, *waiting.popleft())
    return Brought(bytes_by_source={"origin": n_bytes} if n_bytes else {})


def read_chunk(context: Context, chunk: Chunk) -> bytes:
    """Read a chunk from the origin, unchecked; it is short where the file is.

    Raises:
        Unfit: the origin cannot be seen from this node.
        Damaged: the file is gone.
        StoreError: the filesystem refused.
    """
    file = context.files[chunk.file]
    try:
        with open(origin_of(context, file), "rb", buffering=0) as source:
            source.seek(chunk.offset)
            return _read(source.fileno(), chunk.size_bytes)
    except OSError as error:
        raise _refused(context, file, error) from None


def check_sizes(context: Context) -> None:
    """Look whether the origin's files have the sizes that were planned; reads none.

    Raises:
        Unfit: the origin cannot be seen from this node.
        Damaged: a file is gone or of another size.
    """
    for file in context.files:
        if _stat(context, file).st_size != file.size_bytes:
            raise changed(context, file)


def origin_of(context: Context, file: ModelFile) -> Path:
    """Return where a file of a context is on the shared filesystem."""
    folder, path = _source(context, file)
    return folder / path


class InPlace:
    """Uses contexts at their origin, and notices when their files change. One per agent."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, int]] = {}

    def check(self, context: Context) -> None:
        """Look at sizes and times of modification; a file of another time than planned is read and compared.

        Raises:
            Unfit: the origin cannot be seen from this node.
            Damaged: a file is not what it was when the run was planned.
        """
        for file in context.files:
            seen = _stat(context, file)
            stamp = (seen.st_size, seen.st_mtime_ns)
            known = self._known.get((context.digest, file.path), (file.size_bytes, file.mtime_ns))
            if stamp != known and (seen.st_size != file.size_bytes or not _is_same(context, file)):
                raise changed(context, file)
            self._known[context.digest, file.path] = stamp


def changed(context: Context, file: ModelFile) -> Damaged:
    """Return the error for a file that is not what was planned."""
    return Damaged(f"{origin_of(context, file)} changed since it was recorded: restore it or plan again")


def _is_same(context: Context, file: ModelFile) -> bool:
    folder, path = _source(context, file)
    try:
        (now,) = describe(folder, [path], context.chunk_bytes)
    except OSError as error:
        raise _refused(context, file, error) from None
    return now.chunks == file.chunks


def _stat(context: Context, file: ModelFile) -> os.stat_result:
    try:
        return os.stat(origin_of(context, file))
    except OSError as error:
        raise _refused(context, file, error) from None


def _source(context: Context, file: ModelFile) -> tuple[Path, str]:
    """Return the folder that a file comes from, and its path there."""
    path = safe_path(file)
    own = path.removeprefix(f"{ADAPTER}/")
    if context.adapter is not None and own != path:
        return Path(context.adapter), own
    return Path(context.origin), path


def _refused(context: Context, file: ModelFile, error: OSError) -> Damaged | StoreError | Unfit:
    origin, path = _source(context, file)
    where = origin / path
    if not origin.is_dir():
        return Unfit(f"the model's folder {origin} cannot be seen from this node: is the filesystem mounted here?")
    if isinstance(error, FileNotFoundError):
        return Damaged(f"{where} is gone since the run was planned: put it back or plan again")
    return StoreError(f"{where} cannot be read ({error.strerror or error})")


def _read(fd: int, size_bytes: int) -> bytes:
    parts, left = [], size_bytes
    while left and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _finish(context: Context, chunk: Chunk, put: Future[None]) -> None:
    try:
        put.result()
    except WrongBytes:
        raise changed(context, context.files[chunk.file]) from None
