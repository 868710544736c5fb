"""Reading JSON Lines and JSON arrays, by DuckDB: pyarrow's reader fails where a nested value changes its type.

A first pass learns the columns, counts the rows, and finds faults before anything is written.
"""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import duckdb
import pyarrow as pa

from fsctx.coordinator.plan.inputs import HEAD_BYTES, Source, open_source
from fsctx.coordinator.plan.reading import BATCH_ROWS, check_utf8, first_line, no_rows
from fsctx.errors import InputError

Layout = Literal["array", "newline_delimited", "unstructured"]
"""DuckDB's words for how values follow each other; `unstructured`: one after another, whatever the lines."""

_COUNTS = "SELECT count(*), count(*) FILTER (json_type(json) = 'OBJECT') FROM "
_KEYS = "SELECT json_keys(json) FROM "
_ALL_KEYS = "SELECT DISTINCT unnest(json_keys(json)) FROM "
_BOM = b"\xef\xbb\xbf"
_DESCRIPTOR = re.compile(r' in file "/proc/self/fd/\d+"|: /proc/self/fd/\d+|/proc/self/fd/\d+')
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 2,
    "memory_limit": "400MB",
    "temp_directory": "",  # nothing that is asked of DuckDB here needs to spill
    "preserve_insertion_order": True,
    "autoinstall_known_extensions": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReader:
    """See `Reader`."""

    source: Source
    columns: dict[str, pa.DataType]
    n_rows_guess: int
    layout: Layout
    sample: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """See `Reader.batches`."""
        types = ", ".join(f"{_string(name)}: '{'JSON' if name == raw else 'VARCHAR'}'" for name in columns)
        with _faults_of(self.source), _connection(self.source) as (connection, path):
            names = ", ".join(map(_identifier, columns))
            how = f"format='{self.layout}', compression='{self.source.compression}'"
            query = f"SELECT {names} FROM read_json({path}, columns={{{types}}}, {how})"  # noqa: S608 - names are escaped
            yield from connection.sql(query).to_arrow_reader(BATCH_ROWS)


def open_json(source: Source) -> JsonReader:
    """Read a file once: for its columns (in the order of the first row, others by name) and its number of rows."""
    layout = _layout(source)
    with _faults_of(source), _connection(source) as (connection, path):
        rows = f"read_json_objects({path}, format='{layout}', compression='{source.compression}')"
        ((n_rows, n_objects),) = connection.execute(_COUNTS + rows).fetchall()
        if n_rows == 0:
            raise no_rows(source)
        if n_objects < n_rows:
            raise _no_objects(source, n_rows - n_objects, n_rows)
        first = connection.execute(f"{_KEYS}{rows} LIMIT 1").fetchall()
        found = connection.execute(_ALL_KEYS + rows).fetchall()
    names = dict.fromkeys([*(key for (keys,) in first for key in keys), *sorted(key for (key,) in found)])
    _check_names(source, names)
    return JsonReader(source=source, columns=dict.fromkeys(names, pa.string()), n_rows_guess=n_rows, layout=layout)


def _no_objects(source: Source, n_wrong: int, n_rows: int) -> InputError:
    return InputError(
        f"{source} has {n_wrong:,} of {n_rows:,} values that are no JSON objects: "
        'write each claim as an object, such as {"claim": "…"}'
    )


def _check_names(source: Source, names: Iterable[str]) -> None:
    """Refuse names that DuckDB cannot read or keep apart: an empty one, and those that differ in case only."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InputError(f"{source} has an empty key: give it a name")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InputError(f"{source} has keys {other!r} and {name!r}, which differ in case only: rename one")


def _layout(source: Source) -> Layout:
    """Tell how the values follow each other, by the first line."""
    with _faults_of(source), open_source(source) as stream:
        head = stream.read(HEAD_BYTES).removeprefix(_BOM).lstrip()
    if head.startswith(b"["):
        return "array"
    line, end, _ = head.partition(b"\n")
    try:
        json.loads(line or b"{}")
    except (ValueError, RecursionError):
        return "unstructured" if end else "newline_delimited"
    return "newline_delimited"


@contextlib.contextmanager
def _connection(source: Source) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """Give a connection and the name to read the file by: one in which no character can be taken for a pattern."""
    descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with duckdb.connect(":memory:", config=_SETTINGS) as connection:
            connection.execute("SET enable_progress_bar = false")  # it is on in notebooks, and writes to stdout
            yield connection, f"'/proc/self/fd/{descriptor}'"
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _faults_of(source: Source) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        check_utf8(source)
        seen = _DESCRIPTOR.sub("", first_line(error))
        raise InputError(f"{source} cannot be read as JSON: {_bad_line(source) or seen}") from None


def _bad_line(source: Source) -> str | None:
    """Find the line of JSON Lines that is no JSON; DuckDB's own numbers are one off at times."""
    with contextlib.suppress(OSError), open_source(source) as stream:
        for number, line in enumerate(io.BufferedReader(cast(io.RawIOBase, stream)), 1):
            text = line.removeprefix(_BOM).strip()
            if number == 1 and text.startswith(b"["):
                return None
            try:
                json.loads(text or b"{}")
            except (ValueError, RecursionError) as error:
                return f"line {number:,}: {first_line(error)}"
    return None


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
