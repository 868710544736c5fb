"""What every reader gives: a file's columns, and its rows as Arrow record batches of bounded size."""

import codecs
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from fsctx.coordinator.plan.inputs import Format, Source, open_source
from fsctx.errors import InputError

BATCH_ROWS = 65_536
_CHUNK_BYTES = 1 << 20


class Ids(StrEnum):
    """How a run keeps its ids: as whole numbers while all of them are, else as text."""

    NUMBERS = "numbers"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A file's content, as read once from end to end."""

    sha256: str
    n_lines: int
    """Lines of the file as it is on disk; means nothing where that is compressed or Parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What the user said about CSV and TSV; None: decide."""

    has_header: bool | None = None
    is_quoted: bool | None = None
    named: tuple[str, ...] = ()
    """Columns that the user named: they tell whether there is a header."""


class Reader(Protocol):
    """One file, ready to be read as often as wanted. Order is the file's.

    Columns of files without types (CSV, text) and of JSON are strings: JSON's strings without
    quotes, its numbers, booleans and nested values as JSON text, its null as null.
    """

    @property
    def source(self) -> Source:
        """The file."""

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The file's columns, in its order."""

    @property
    def n_rows_guess(self) -> int:
        """How many rows it may have; exact for Parquet and JSON."""

    @property
    def sample(self) -> tuple[str, ...]:
        """The first row's values where the columns' names say nothing, else nothing."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, for the user to check."""

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """Read some columns. The JSON reader gives column `raw` as JSON text, quotes included.

        Raises:
            InputError: the content is damaged; says where.
        """


@contextlib.contextmanager
def faults_of(source: Source, *, hint: str = "") -> Iterator[None]:
    """Turn what pyarrow and the system raise while a file is read into one clear line."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if source.format not in (Format.PARQUET, Format.ARROW):
            check_utf8(source)
        raise InputError(f"{source} cannot be read as {source.format}: {first_line(error)}{hint}") from None


def check_utf8(source: Source) -> None:
    """Look for the first byte that is no UTF-8, in a file of text.

    Raises:
        InputError: names its place.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line = 0, 1
    with contextlib.suppress(OSError), open_source(source) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            n_held = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                at = error.start - n_held
                line += chunk.count(b"\n", 0, max(at, 0))
                raise _not_utf8(source, error.object[error.start], offset=offset + at, line=line) from None
            offset += len(chunk)
            line += chunk.count(b"\n")


def _not_utf8(source: Source, byte: int, *, offset: int, line: int) -> InputError:
    return InputError(
        f"{source} is not UTF-8 at byte {offset + 1:,} (line {line:,}, value 0x{byte:02x}): "
        "convert it, for example with iconv -f LATIN1 -t UTF-8"
    )


def first_line(error: Exception) -> str:
    """Return what an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def no_rows(source: Source) -> InputError:
    """Return the error of a file that holds nothing to verify."""
    return InputError(f"{source} holds no rows: pass a file with claims")


def check_distinct(source: Source, names: Sequence[str]) -> None:
    """Refuse a file two of whose columns have one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{source} has more than one column named {', '.join(twice)}: rename all but one")
