"""Writing tables to Parquet, JSON Lines or CSV: whole under the final name, or not there at all."""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fsctx.coordinator.collect.openai import OpenAiWriter
from fsctx.errors import FsctxError, InputError, NoSpace, StoreError
from fsctx.protocol.verdicts import SCORE
from fsctx.store.base import TEMPORARY

METADATA_KEY = b"fsctx.manifest"
"""Where a Parquet file's metadata hold the run's manifest, byte for byte."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Writer(Protocol):
    """Writes tables of one schema, one after the other."""

    def write(self, table: pa.Table) -> None:
        """Append rows."""

    def close(self) -> None:
        """Finish the file's content; closing the file is the caller's."""


class ParquetWriter:
    """Parquet with the manifest in its metadata; a row group per table.

    Statistics of the columns by which nobody skips row groups, and dictionaries of those that never repeat, would
    take half of the time.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, manifest: bytes) -> None:
        self._schema = schema.with_metadata({METADATA_KEY: manifest})
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if not _is_unlike(name)],  # type: ignore[arg-type]
            write_statistics=["id", "unit"],
        )

    def write(self, table: pa.Table) -> None:
        """See `Writer.write`."""
        self._writer.write_table(table.cast(self._schema), row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        """See `Writer.close`."""
        self._writer.close()


class CsvWriter:
    """CSV as RFC 4180 has it, with a header; null is empty, an empty string is `""`, a list is JSON."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, _manifest: bytes) -> None:
        kinds = [pa.string() if pa.types.is_list(field.type) else field.type for field in schema]
        self._writer = pyarrow.csv.CSVWriter(file, pa.schema(list(zip(schema.names, kinds, strict=True))))

    def write(self, table: pa.Table) -> None:
        """See `Writer.write`."""
        columns = [_as_json(column) if pa.types.is_list(column.type) else column for column in table.columns]
        self._writer.write_table(pa.table(columns, table.column_names))

    def close(self) -> None:
        """See `Writer.close`."""
        self._writer.close()


class JsonLinesWriter:
    """JSON Lines in UTF-8. JSON has no NaN and no infinity: they become null."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, _manifest: bytes) -> None:
        self._file = file
        self._names = schema.names
        self._duckdb = duckdb.connect(config={"threads": 2})
        self._duckdb.execute("SET enable_progress_bar = false")  # it is on in notebooks, and writes to stdout
        pairs = ", ".join(f"{_quoted(name)}, c{i}" for i, name in enumerate(self._names))
        self._query = f"SELECT json_object({pairs}) FROM rows"  # noqa: S608 names are quoted; there is no database

    def write(self, table: pa.Table) -> None:
        """See `Writer.write`."""
        finite = pa.table([_finite(column) for column in table.columns], [f"c{i}" for i in range(len(self._names))])
        self._duckdb.register("rows", finite)
        lines = self._duckdb.sql(self._query).to_arrow_table().column(0)
        for chunk in pc.binary_join_element_wise(lines, "", "\n").chunks:
            self._file.write(_content(chunk))

    def close(self) -> None:
        """See `Writer.close`."""
        self._duckdb.close()


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema, bytes], Writer]] = {
    ".parquet": ParquetWriter,
    ".jsonl": JsonLinesWriter,
    ".csv": CsvWriter,
}


FileFormat = Literal["rows", "openai"]
"""What a file holds: rows, in the form that its ending names, or answers of an OpenAI batch."""


def writer_for(path: Path, form: FileFormat = "rows") -> Callable[[BinaryIO, pa.Schema, bytes], Writer]:
    """Return what writes files with this path's ending.

    Raises:
        InputError: nothing does.
    """
    if form == "openai":
        if path.suffix.lower() != ".jsonl":
            raise InputError(f"{path}: answers of an OpenAI batch are JSON Lines: pass a name that ends in .jsonl")
        return OpenAiWriter
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        *most, last = WRITERS
        raise InputError(f"{path} ends in {path.suffix!r}: pass a name that ends in {', '.join(most)} or {last}")
    return writer


def check_place(path: Path) -> None:
    """Check before any work that a file can be written at `path`.

    Raises:
        InputError: it is a folder, or its folder is missing or may not be written to.
    """
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{path} is a folder: pass the name of a file")
    if not folder.is_dir():
        raise InputError(f"{path}: there is no folder {folder}: make it, or pass another name")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: no permission to write in {folder}: pass another name")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the name `path` when the block ends, durable and whole.

    Where the block raises, the new file is removed and what stood at `path` is untouched. A symlink at `path` stays
    one. Raises:
        NoSpace: the disk or quota is full.
        InputError: no permission.
        StoreError: the filesystem refused otherwise.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(4)}{target.suffix}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise _map(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


@contextlib.contextmanager
def writing(path: Path, schema: pa.Schema, manifest: bytes, form: FileFormat = "rows") -> Iterator[Writer]:
    """Open a writer for the format that the path's ending names; see `replacing`."""
    make = writer_for(path, form)
    with replacing(path) as file:
        writer = make(file, schema, manifest)
        try:
            yield writer
        except BaseException:
            with contextlib.suppress(Exception):  # it can only complain about the same
                writer.close()
            raise
        writer.close()


def _map(path: Path, error: OSError) -> FsctxError:
    seen = f"{path} could not be written: {error.strerror or error}"
    if error.errno in _FULL:
        return NoSpace(
            f"{seen}; nothing was changed: free some space (or raise the quota), then run the same command again"
        )
    if isinstance(error, PermissionError):
        return InputError(f"{seen}: pass another name")
    return StoreError(f"{seen}; nothing was changed: run the same command again")


def _is_unlike(name: str) -> bool:
    """Whether a column's values hardly repeat."""
    return name in ("id", "claim", "text") or name.startswith(SCORE)


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _as_json(lists: "pa.ChunkedArray[Any]") -> "pa.Array[Any]":
    texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in lists.to_pylist()]
    return pa.array(texts, pa.string())


def _finite(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    if not pa.types.is_floating(column.type):
        return column
    finite: pa.ChunkedArray[Any] = pc.if_else(pc.is_finite(column), column, None)
    return finite


def _content(lines: "pa.Array[Any]") -> memoryview:
    """Return the bytes of all strings of an array, one after the other, without a copy."""
    array = lines.cast(pa.large_string())
    _, offsets, content = array.buffers()
    ends = memoryview(offsets).cast("q")[array.offset : array.offset + len(array) + 1]  # type: ignore[arg-type]
    return memoryview(content)[ends[0] : ends[-1]]  # type: ignore[arg-type]
