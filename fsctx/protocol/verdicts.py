"""The rows of a result: their columns, and what must be true of a file of them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.errors import Damaged

SMALL_ROWS = 256
"""A table of fewer rows is written plainly: compressing it takes longer and saves nothing."""

SCORE = "score_"
"""Prefix of the columns that hold a label's log-probability, in nats."""


class Status(StrEnum):
    """How a row ended."""

    OK = "ok"
    TOO_LONG = "too_long"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome for one claim under one task."""

    row: int
    """Row number in the run's claims, from 0."""
    verdict: str | None = None
    scores: tuple[float, ...] | None = None
    """Log-probability of each label, in the template's order; None when generating."""
    text: str | None = None
    status: Status = Status.OK
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who computed rows: the provenance columns."""

    generation: int
    agent: str
    host: str
    device: str
    engine: str


def schema(labels: Sequence[str]) -> pa.Schema:
    """Return the columns of a result file of a task with these labels."""
    return _schema(tuple(labels))


@functools.lru_cache(maxsize=64)
def _schema(labels: tuple[str, ...]) -> pa.Schema:
    fields: list[pa.Field[Any]] = [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("verdict", pa.string()),
        *(pa.field(SCORE + label, pa.float32()) for label in labels),
        pa.field("text", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("input_tokens", pa.int32(), nullable=False),
        pa.field("output_tokens", pa.int32(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("agent", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("device", pa.string(), nullable=False),
        pa.field("engine", pa.string(), nullable=False),
    ]
    return pa.schema(fields)


def to_table(verdicts: Sequence[Verdict], labels: Sequence[str], origin: Origin) -> pa.Table:
    """Return verdicts as a table, one row each, in the order given."""
    n = len(verdicts)
    string, int32 = pa.string(), pa.int32()
    columns: list[pa.Array[Any]] = [
        pa.array([v.row for v in verdicts], pa.int64()),
        pa.array([v.verdict for v in verdicts], string),
        *(
            pa.array([None if v.scores is None else v.scores[i] for v in verdicts], pa.float32())
            for i in range(len(labels))
        ),
        _column([v.text for v in verdicts], string),
        _column([v.status.value for v in verdicts], string),
        _column([v.error for v in verdicts], string),
        pa.array([v.input_tokens for v in verdicts], int32),
        _column([v.output_tokens for v in verdicts], int32),
        _repeated(origin.generation, int32, n),
        *(_repeated(one, string, n) for one in (origin.agent, origin.host, origin.device, origin.engine)),
    ]
    return pa.Table.from_arrays(columns, schema=schema(labels))


def _column(values: list[Any], kind: pa.DataType) -> "pa.Array[Any]":
    """Return a column that seldom holds more than one value."""
    return _repeated(values[0], kind, len(values)) if len(set(values)) == 1 else pa.array(values, kind)


@functools.lru_cache(maxsize=64)
def _repeated(value: Any, kind: pa.DataType, n: int) -> "pa.Array[Any]":
    """Return a column of one value, the same object for each unit: to make it takes longer than to write it."""
    return pa.array([value] * n, kind)


def to_parquet(table: pa.Table, *, run: str, unit: int) -> bytes:
    """Return a table of verdicts as the bytes of a Parquet file that names its run and unit."""
    sink = pa.BufferOutputStream()  # of pyarrow: a file of Python's would take the interpreter's lock for each page
    is_small = table.num_rows < SMALL_ROWS
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="none" if is_small else "zstd",
        use_dictionary=not is_small,
        write_statistics=False,  # nobody looks for rows by value
        store_schema=False,  # Parquet has all of these types: a third of a small file, and of the time to read it
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"fsctx.run": run, "fsctx.unit": str(unit)})
    return sink.getvalue().to_pybytes()


def from_parquet(source: BinaryIO, *, run: str, unit: int, labels: Sequence[str], where: str) -> pa.Table:
    """Read a table of verdicts back and check whose it is.

    Raises:
        Damaged: not Parquet, cut short, of other columns, or of another run or unit.
    """
    try:
        table = pq.ParquetFile(source).read(use_threads=False)  # half the time of read_table for a file this small
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{where} is not readable Parquet ({_first_line(error)})") from None
    marks = table.schema.metadata or {}
    seen = (marks.get(b"fsctx.run"), marks.get(b"fsctx.unit"))
    if seen != (run.encode(), b"%d" % unit):
        raise Damaged(f"{where} says it is of run, unit {seen}, not of {run}, {unit}")
    if not table.schema.equals(schema(labels), check_metadata=False):
        raise Damaged(f"{where} has columns {table.schema.names}, not those of its task")
    return table


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
