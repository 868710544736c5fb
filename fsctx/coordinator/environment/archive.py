"""Reading an environment's archive."""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from fsctx.errors import Damaged, InputError
from fsctx.protocol import codec
from fsctx.protocol.manifest import Environment

RECORD = "fsctx-environment.json"
"""The first file in an archive: what the environment is."""

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 4 << 20


def read_archive(archive: Path, *, progress: Callable[[int, int], None]) -> Environment:
    """Read a whole archive, so that damage is found here rather than on the nodes, and return what it says it is.

    Raises:
        InputError: not an archive of `fsctx env pack`.
        Damaged: it was, but is not whole any more.
    """
    try:
        with open(archive, "rb") as file:
            head = file.read(len(_GZIP_MAGIC))
    except OSError as error:
        raise InputError(f"{archive} cannot be read ({error.strerror}): pass what `fsctx env pack` made") from None
    if head != _GZIP_MAGIC:
        raise InputError(f"{archive} is no .tar.gz (it begins with {head!r}): pass what `fsctx env pack` made")
    try:
        environment = _record(archive)
        _read_through(archive, progress)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(f"{archive} is damaged ({error}): pack the environment again") from None
    return environment


def _record(archive: Path) -> Environment:
    with tarfile.open(archive, "r|gz") as tar:
        first = tar.next()
        content = tar.extractfile(first) if first is not None and first.name == RECORD else None
        if content is None:
            raise InputError(f"{archive} was not made by `fsctx env pack` (it does not begin with {RECORD}): use that")
        return codec.decode(content.read(), Environment, where=f"{archive}:{RECORD}")


def _read_through(archive: Path, progress: Callable[[int, int], None]) -> None:
    """Read to the end, where gzip's check sum is."""
    size = archive.stat().st_size
    with open(archive, "rb") as file, gzip.open(file) as content:
        while content.read(_READ_BYTES):
            progress(file.tell(), size)
