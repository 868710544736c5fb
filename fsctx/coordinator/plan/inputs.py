"""INPUT arguments → files, with what they hold: by name, and checked against the content."""

import glob
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from fsctx.coordinator.plan.datasets_folder import check_one_split, saved_dataset
from fsctx.errors import InputError

HEAD_BYTES = 1 << 20
_SNIFF_BYTES = 1 << 16


class Format(StrEnum):
    """How a file writes rows."""

    PARQUET = "Parquet"
    ARROW = "Arrow"
    JSON = "JSON"
    CSV = "CSV"
    TSV = "TSV"
    TEXT = "text"


class Compression(StrEnum):
    """How a file is compressed as a whole; the values are pyarrow's and DuckDB's names."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_FORMATS = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
}
_COMPRESSIONS = {
    ".gz": Compression.GZIP,
    ".gzip": Compression.GZIP,
    ".zst": Compression.ZSTD,
    ".zstd": Compression.ZSTD,
}
_KNOWN = ", ".join(_FORMATS) + " (each also with .gz or .zst)"
FILE_MAGIC, _STREAM_MAGIC = b"ARROW1", b"\xff\xff\xff\xff"
_MAGIC = (
    (b"PAR1", "Parquet"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "a zip archive (or Excel)"),
    (b"%PDF", "PDF"),
    (b"SQLite format 3", "SQLite"),
    (FILE_MAGIC, "Arrow IPC"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (_STREAM_MAGIC, "an Arrow stream"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One input file."""

    path: Path
    format: Format
    compression: Compression
    size_bytes: int
    mtime_ns: int
    """Compared with itself only, to notice that the file changed."""

    def __str__(self) -> str:
        return str(self.path)


def open_source(source: Source) -> pa.NativeFile:
    """Open a file for reading from its start, decompressed."""
    raw = pa.OSFile(str(source.path), "rb")
    return raw if source.compression is Compression.NONE else decompressed(raw, source.compression)


def decompressed(raw: pa.NativeFile, compression: Compression) -> pa.NativeFile:
    """Read a compressed file's content."""
    return pa.CompressedInputStream(raw, "gzip" if compression is Compression.GZIP else "zstd")


def find_sources(inputs: Sequence[str]) -> tuple[Source, ...]:
    """Turn INPUT arguments into files, in the order given; a folder's and a glob's files in the order of their names.

    Raises:
        InputError: nothing there, a name or content that is not understood, an empty file, a file named twice.
    """
    sources = tuple(_source(path) for given in inputs for path in _expand(given))
    seen: dict[Path, str] = {}
    for source in sources:
        resolved = source.path.resolve()
        if resolved in seen:
            raise InputError(f"{source} is named twice (also as {seen[resolved]}): name each input once")
        seen[resolved] = str(source)
    return sources


def _expand(given: str) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        return _files_of(path)
    if path.exists():
        return [path]
    if not glob.has_magic(given):
        raise InputError(f"input {given} does not exist: check the path")
    matches = sorted(Path(p) for p in glob.glob(given, recursive=True) if Path(p).is_file())
    if not matches:
        raise InputError(f"no file matches {given}: check the pattern")
    return matches


def _files_of(folder: Path) -> list[Path]:
    """Return the inputs in a folder: those of a data set that `datasets` saved, or all of a known format."""
    saved = saved_dataset(folder)
    if saved is not None:
        return saved
    found = sorted(p for p in folder.iterdir() if _format_of(p) and p.is_file() and not p.name.startswith("."))
    if not found and (folder / "data").is_dir():  # as the hub's repositories have them
        return _files_of(folder / "data")
    if not found:
        raise InputError(f"folder {folder} holds no file of a known format: {_KNOWN}")
    check_one_split(folder, found)
    return found


def _compression_of(path: Path) -> Compression:
    return _COMPRESSIONS.get(path.suffix.lower(), Compression.NONE)


def _format_of(path: Path) -> Format | None:
    plain = path.with_suffix("") if _compression_of(path) is not Compression.NONE else path
    return _FORMATS.get(plain.suffix.lower())


def _source(path: Path) -> Source:
    known = _format_of(path)
    if known is None:
        raise InputError(f"the name of {path} does not tell its format: name it *{_KNOWN}")
    try:
        seen = path.stat()
        source = Source(
            path=path,
            format=known,
            compression=_compression_of(path),
            size_bytes=seen.st_size,
            mtime_ns=seen.st_mtime_ns,
        )
        _check_content(source)
    except PermissionError:
        raise InputError(f"{path} may not be read (permission denied): change its mode, or copy it") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}): check the file") from None
    return source


def _check_content(source: Source) -> None:
    """Check that a file's first bytes are what its name promises."""
    with open(source.path, "rb") as file:
        raw = file.read(_SNIFF_BYTES)
    if not raw:
        raise InputError(f"{source} is empty: pass a file with claims")
    if source.compression is not Compression.NONE:
        if _seen(raw) != source.compression.value:
            raise _misnamed(source, promised=source.compression.value, head=raw)
        with open_source(source) as stream:
            raw = stream.read(_SNIFF_BYTES)
        if not raw:
            raise InputError(f"{source} holds nothing when decompressed: pass a file with claims")
    if not _LOOKS_LIKE[source.format](raw):
        raise _misnamed(source, promised=source.format.value, head=raw)


def _misnamed(source: Source, *, promised: str, head: bytes) -> InputError:
    return InputError(
        f"{source} is named like {promised}, but its content is {_describe(head)}: "
        "give it the name of what it holds, or pass another file"
    )


def _seen(head: bytes) -> str | None:
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def _describe(head: bytes) -> str:
    kind = _seen(head)
    if kind:
        return kind
    if b"\0" in head:
        return "binary"
    if _is_json_object(head):
        return "JSON"
    return f"other text (it begins with {head[:20].decode(errors='replace')!r})"


def _is_json(head: bytes) -> bool:
    return _plain(head).lstrip()[:1] in (b"{", b"[", b"")


def _is_table(head: bytes) -> bool:
    return _seen(head) is None and b"\0" not in head and not _is_json_object(head)


def _is_json_object(head: bytes) -> bool:
    """Whether the first line is a JSON object: no table and no text begins like that."""
    line = _plain(head).lstrip().partition(b"\n")[0]
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _plain(head: bytes) -> bytes:
    return head.removeprefix(b"\xef\xbb\xbf")


_LOOKS_LIKE: dict[Format, Callable[[bytes], bool]] = {
    Format.PARQUET: lambda head: head.startswith(b"PAR1"),
    Format.ARROW: lambda head: head.startswith((FILE_MAGIC, _STREAM_MAGIC)),
    Format.JSON: _is_json,
    Format.CSV: _is_table,
    Format.TSV: _is_table,
    Format.TEXT: _is_table,
}
