"""Hashes of files, chunk by chunk, by several threads at once: hashlib lets other threads run, as reading does."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fsctx.protocol.manifest import ModelFile

READ_BYTES = 4 << 20
"""Files are read in pieces of this size."""

_N_THREADS = 4
"""More than a small node has cores: some of them wait for the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    path: Path
    file: int
    offset: int


def describe(
    folder: Path, paths: Sequence[str], chunk_bytes: int, *, progress: Callable[[int], None] = lambda _: None
) -> tuple[ModelFile, ...]:
    """Read files once and return their sizes, times and chunk hashes, in the order given.

    `progress` is told how many bytes are done.

    Raises:
        OSError: a file cannot be read, or changed meanwhile (ESTALE).
    """
    before = [os.stat(folder / path) for path in paths]
    pieces = [
        _Piece(path=folder / paths[number], file=number, offset=offset)
        for number, seen in enumerate(before)
        for offset in range(0, seen.st_size, chunk_bytes)
    ]
    chunks: list[list[str]] = [[] for _ in paths]
    done = 0
    with ThreadPoolExecutor(_N_THREADS) as pool:
        for piece, (sha256, n_bytes) in zip(pieces, pool.map(lambda p: _hash(p, chunk_bytes), pieces), strict=True):
            chunks[piece.file].append(sha256)
            done += n_bytes
            progress(done)
    for path, seen in zip(paths, before, strict=True):
        _check_unchanged(folder / path, seen)
    return tuple(
        ModelFile(path=path, size_bytes=seen.st_size, chunks=tuple(hashes), mtime_ns=seen.st_mtime_ns)
        for path, seen, hashes in zip(paths, before, chunks, strict=True)
    )


def problem_with(file: ModelFile, folder: Path, path: str, chunk_bytes: int) -> str | None:
    """Read a file and return what is wrong with it, in words; None if it is what the record says."""
    try:
        (found,) = describe(folder, [path], chunk_bytes)
    except OSError as error:
        return f"{folder / path}: {error.strerror or error}"
    if found.size_bytes != file.size_bytes:
        return f"{folder / path} has {found.size_bytes} bytes instead of {file.size_bytes}"
    wrong = [number for number, (a, b) in enumerate(zip(found.chunks, file.chunks, strict=True)) if a != b]
    return f"{folder / path} is damaged (chunk {wrong[0]} of {len(file.chunks)})" if wrong else None


def _hash(piece: _Piece, chunk_bytes: int) -> tuple[str, int]:
    digest, buffer, n_bytes = hashlib.sha256(), memoryview(bytearray(min(READ_BYTES, chunk_bytes))), 0
    fd = os.open(piece.path, os.O_RDONLY)
    try:
        while n_bytes < chunk_bytes:
            got = os.preadv(fd, [buffer[: chunk_bytes - n_bytes]], piece.offset + n_bytes)
            if got == 0:
                break
            digest.update(buffer[:got])
            n_bytes += got
    finally:
        os.close(fd)
    return digest.hexdigest(), n_bytes


def _check_unchanged(path: Path, before: os.stat_result) -> None:
    after = os.stat(path)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise OSError(0, "changed while it was read", str(path))
