"""Reading CSV, TSV, and text with one claim a line. All values are strings: what they mean is decided later."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.csv

from fsctx.coordinator.plan.columns import CLAIM_NAMES, looks_like_header
from fsctx.coordinator.plan.inputs import HEAD_BYTES, Compression, Format, Source, decompressed, open_source
from fsctx.coordinator.plan.reading import Dialect, Fingerprint, check_distinct, faults_of, no_rows
from fsctx.errors import InputError

_MADE_UP = re.compile(r"column_\d+")
_BLOCK_BYTES = 4 << 20
"""A row may not be longer."""
_HEAD_ROWS = 20
_UNIT_SEPARATOR = "\x1f"
"""Delimiter that no text is expected to hold, to read lines as tables of one column."""
_DELIMITERS = {Format.CSV: ",", Format.TSV: "\t", Format.TEXT: _UNIT_SEPARATOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class DelimitedReader:
    """See `Reader`."""

    source: Source
    columns: dict[str, pa.DataType]
    n_rows_guess: int
    n_skipped: int
    """Rows before the data: the header, and empty lines above it."""
    is_quoted: bool
    sample: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """See `Reader.batches`."""
        with faults_of(self.source, hint=self._hint), open_source(self.source) as stream:
            yield from pyarrow.csv.open_csv(
                cast(BinaryIO, stream),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=list(self.columns),
                    skip_rows_after_names=self.n_skipped,
                    block_size=_BLOCK_BYTES,
                    use_threads=False,
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=_DELIMITERS[self.source.format],
                    quote_char='"' if self.is_quoted else False,
                    newlines_in_values=self.is_quoted,
                    ignore_empty_lines=self.source.format is not Format.TEXT,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=self.columns, include_columns=list(columns), strings_can_be_null=False
                ),
            )

    @property
    def _hint(self) -> str:
        if self.source.format is Format.TEXT:
            return ""
        return f"; if quotes are the reason, pass --quoting {'off' if self.is_quoted else 'on'}"


def open_delimited(source: Source, dialect: Dialect, fingerprint: Fingerprint) -> DelimitedReader:
    """Read a file's first rows to learn its columns."""
    with faults_of(source):
        head, n_rows_guess = _head(source, fingerprint)
    if source.format is Format.TEXT:
        return DelimitedReader(
            source=source,
            columns={CLAIM_NAMES[0]: pa.string()},
            n_rows_guess=n_rows_guess,
            n_skipped=0,
            is_quoted=False,
        )
    is_quoted = source.format is Format.CSV if dialect.is_quoted is None else dialect.is_quoted
    rows = _head_rows(source, head, is_quoted=is_quoted)
    n_empty = next((i for i, row in enumerate(rows) if row), len(rows))
    if n_empty == len(rows):
        raise no_rows(source)
    first = rows[n_empty]
    has_header = _has_header(first, dialect)
    names = [(cell.strip() if has_header else "") or f"column_{i}" for i, cell in enumerate(first, 1)]
    check_distinct(source, names)
    _check_delimiter(source, names)
    return DelimitedReader(
        source=source,
        columns=dict.fromkeys(names, pa.string()),
        n_rows_guess=max(1, n_rows_guess - n_empty - has_header),
        n_skipped=n_empty + has_header,
        is_quoted=is_quoted,
        sample=() if has_header else tuple(first),
        notes=(*_header_note(source, names, dialect, has_header=has_header), *_quote_note(source, rows, dialect)),
    )


def _has_header(first: Sequence[str], dialect: Dialect) -> bool:
    if dialect.has_header is not None:
        return dialect.has_header
    if any(name in first for name in dialect.named):
        return True
    return looks_like_header(first) and not any(_MADE_UP.fullmatch(name) for name in dialect.named)


def _head(source: Source, fingerprint: Fingerprint) -> tuple[str, int]:
    """Return a file's beginning, and how many lines it may have in all."""
    if source.compression is Compression.NONE:
        with open_source(source) as stream:
            return _text(stream.read(HEAD_BYTES)), fingerprint.n_lines
    with pa.OSFile(str(source.path), "rb") as raw, decompressed(raw, source.compression) as stream:
        head = stream.read(HEAD_BYTES)
        return _text(head), head.count(b"\n") * source.size_bytes // max(1, raw.tell()) + 1


def _text(head: bytes) -> str:
    return head.decode("utf-8-sig", errors="replace")


def _head_rows(source: Source, head: str, *, is_quoted: bool) -> list[list[str]]:
    usual = csv.field_size_limit(_BLOCK_BYTES)
    rows = csv.reader(
        io.StringIO(head, newline=""),
        delimiter=_DELIMITERS[source.format],
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
    )
    try:
        return list(islice(rows, _HEAD_ROWS))
    except csv.Error as error:
        raise InputError(
            f"{source}: the first rows cannot be read ({error}): if a quote is never closed, pass --quoting off"
        ) from None
    finally:
        csv.field_size_limit(usual)  # it is the whole process's


def _check_delimiter(source: Source, names: Sequence[str]) -> None:
    """Refuse a file that seems to be split by something else than its name says."""
    if len(names) > 1:
        return
    for delimiter, said in (("\t", "tabs"), (";", "semicolons"), (",", "commas")):
        if delimiter in names[0]:
            raise InputError(
                f"{source} is named like {source.format}, but its first row seems to be split by {said}: "
                + ("rename it to .tsv" if delimiter == "\t" else "write it with the delimiter that its name says")
            )


def _header_note(source: Source, names: Sequence[str], dialect: Dialect, *, has_header: bool) -> Iterator[str]:
    if dialect.has_header is not None:
        return
    if has_header:
        if not set(CLAIM_NAMES) & {name.lower() for name in names}:
            yield f"{source}: the first row was taken for the columns' names; pass --no-header if it is data"
    else:
        yield (
            f"{source}: the first row was taken for data, so the columns are {names[0]} to {names[-1]}; "
            "pass --header if it names them"
        )


def _quote_note(source: Source, rows: Sequence[Sequence[str]], dialect: Dialect) -> Iterator[str]:
    """Tell where quotes that were left in place look like the format's own."""
    cells = [cell for row in rows for cell in row]
    n_quoted = sum(len(cell) > 1 and cell.startswith('"') and cell.endswith('"') for cell in cells)
    if n_quoted and dialect.is_quoted is None and source.format is Format.TSV:
        yield (
            f"{source}: quotes were kept as part of the text ({n_quoted} cells of the first rows stand in quotes); "
            "pass --quoting on if they only enclose it"
        )
