"""Copying a context's files from a folder to the node's disk, checked chunk by chunk."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fsctx.errors import Damaged, NoSpace, StoreError, Unfit
from fsctx.protocol.manifest import Context, ModelFile

_FULL = {errno.ENOSPC, errno.EDQUOT}


def copy_context(context: Context, origin: Path, target: Path) -> None:
    """Copy all files of a context into the new folder `target`, durably, reading each from its start to its end.

    Raises:
        Unfit: the origin cannot be seen from this node.
        Damaged: a file is not what it was when the run was planned.
        NoSpace: the node's disk is full.
    """
    if not origin.is_dir():
        raise Unfit(f"the model's folder {origin} cannot be seen from this node: is the filesystem mounted here?")
    _check_space(context.size_bytes, target.parent)
    with full_disk(target):
        target.mkdir()
        for file in context.files:
            _copy_file(file, context.chunk_bytes, origin, target)
        sync_folders(target)


def problem_with(file: ModelFile, folder: Path, chunk_bytes: int) -> str | None:
    """Read a file and return what is wrong with it, in words; None if it is what the record says."""
    try:
        with open(folder / safe_path(file), "rb") as source:
            for _ in _checked_chunks(source, file, chunk_bytes, where=str(folder)):
                pass
    except Damaged as error:
        return str(error)
    except OSError as error:
        return f"{folder}/{file.path}: {error.strerror}"
    return None


def has_sizes(context: Context, folder: Path) -> bool:
    """Tell whether all files stand in a folder with their sizes; reads none."""
    try:
        return all(os.stat(folder / safe_path(file)).st_size == file.size_bytes for file in context.files)
    except OSError:
        return False


def describe(folder: Path, chunk_bytes: int) -> tuple[ModelFile, ...]:
    """Return the record of a folder's files: sizes and chunk hashes."""
    return tuple(_describe(path, folder, chunk_bytes) for path in sorted(folder.rglob("*")) if path.is_file())


def sync_folders(folder: Path) -> None:
    """Make a tree durable: every file and every folder of it."""
    for path in [*folder.rglob("*"), folder]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Turn errors of the node's disk into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(
                f"{folder.parent} is full: free some space (`fsctx cache prune`), or pass --cache DIR on another disk"
            ) from None
        raise StoreError(f"{error.filename or folder}: {error.strerror or error}") from None


def safe_path(file: ModelFile) -> str:
    """Return a file's path within its context.

    Raises:
        Damaged: it leads out of the context's folder.
    """
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Damaged(f"a context names the file {file.path!r}, which is not within its folder: plan the run again")
    return str(path)


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpace(
            f"{folder} has {free / 1e9:.2f} GB free and the model needs {needed / 1e9:.2f} GB:"
            " free some space (`fsctx cache prune`), or pass --cache DIR on another disk"
        )


def _copy_file(file: ModelFile, chunk_bytes: int, origin: Path, target: Path) -> None:
    path = target / safe_path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(origin, file) as source, open(path, "xb") as copy:
        for chunk in _checked_chunks(source, file, chunk_bytes, where=str(origin)):
            copy.write(chunk)


def _opened(origin: Path, file: ModelFile) -> BinaryIO:
    try:
        return open(origin / safe_path(file), "rb")
    except FileNotFoundError:
        raise Damaged(f"{origin}/{file.path} is gone since the run was planned: put it back or plan again") from None


def _checked_chunks(source: BinaryIO, file: ModelFile, chunk_bytes: int, *, where: str) -> Iterator[bytes]:
    size = 0
    for number, expected in enumerate(file.chunks):
        chunk = source.read(chunk_bytes)
        if hashlib.sha256(chunk).hexdigest() != expected:
            raise Damaged(
                f"{where}/{file.path} changed since it was recorded (chunk {number}): restore it or plan again"
            )
        size += len(chunk)
        yield chunk
    if size != file.size_bytes or source.read(1):
        raise Damaged(f"{where}/{file.path} is not {file.size_bytes} bytes long any more: restore it or plan again")


def _describe(path: Path, folder: Path, chunk_bytes: int) -> ModelFile:
    chunks = []
    with open(path, "rb") as source:
        while chunk := source.read(chunk_bytes):
            chunks.append(hashlib.sha256(chunk).hexdigest())
    name = path.relative_to(folder).as_posix()
    return ModelFile(path=name, size_bytes=path.stat().st_size, chunks=tuple(chunks))
