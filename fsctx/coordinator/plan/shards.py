"""Writing the shards: Parquet files whose row groups are the run's slices."""

import contextlib
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.coordinator.plan.faults import disk_faults
from fsctx.protocol import names
from fsctx.protocol.manifest import ROW_CLAIM, ROW_ID
from fsctx.protocol.shards import marks_of
from fsctx.store.base import TEMPORARY

_TINY_ROWS = 32
_WRITERS = 2
_FLUSH_ROWS = 65_536
"""So many rows are gathered before they are written, or one slice where that is more."""


class ShardWriter:
    """Writes rows, in order, as shards of `slices_per_shard` row groups of exactly `unit_rows` rows each.

    Only the last row group of all may be short. A shard gets its name when it is whole and durable; shards that
    are filled by the same rows are written side by side. Memory is bounded by one slice or `_FLUSH_ROWS` rows.
    Use as a context manager; `finish` at the end. `before_naming` may object to each name.
    """

    def __init__(
        self,
        root: Path,
        schema: pa.Schema,
        *,
        run: str,
        unit_rows: int,
        slices_per_shard: int,
        before_naming: Callable[[], None] = lambda: None,
    ) -> None:
        self.n_bytes = 0
        self._root = root
        self._before_naming = before_naming
        self._schema = schema
        self._run = run
        self._unit_rows = unit_rows
        self._shard_rows = unit_rows * slices_per_shard
        self._flush_rows = -(-_FLUSH_ROWS // unit_rows) * unit_rows
        self._n_written = 0
        self._held: list[pa.RecordBatch] = []
        self._n_held = 0
        self._shards: dict[int, _Shard] = {}
        self._pool = ThreadPoolExecutor(max_workers=_WRITERS)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *failure: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for shard in self._shards.values():
            shard.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._held.append(batch)
        self._n_held += batch.num_rows
        if self._n_held >= self._flush_rows:
            self._flush(self._n_held - self._n_held % self._unit_rows)

    def finish(self) -> None:
        """Write what is left and close the last shard."""
        self._flush(self._n_held)
        self.n_bytes += sum(self._close(number) for number in list(self._shards))

    def _flush(self, n_rows: int) -> None:
        """Write the first rows held, shard by shard."""
        table = pa.Table.from_batches(self._held, self._schema)
        pieces = []
        start = 0
        while start < n_rows:
            number, offset = divmod(self._n_written + start, self._shard_rows)
            stop = min(start + self._shard_rows - offset, n_rows)
            pieces.append((number, table.slice(start, stop - start), offset + stop - start == self._shard_rows))
            start = stop
        self.n_bytes += sum(self._pool.map(self._write, *zip(*pieces, strict=True)))
        self._n_written += n_rows
        self._held = table.slice(n_rows).to_batches()
        self._n_held = table.num_rows - n_rows

    def _write(self, number: int, rows: pa.Table, is_last: bool) -> int:  # noqa: FBT001 - mapped by position
        """Add rows to a shard; return the file's size if they are its last, else 0."""
        if number not in self._shards:
            marked = self._schema.with_metadata(marks_of(self._run, number))
            self._shards[number] = _Shard(self._root, number, marked, unit_rows=self._unit_rows)
        self._shards[number].write(rows)
        return self._close(number) if is_last else 0

    def _close(self, number: int) -> int:
        size = self._shards[number].finish(self._before_naming)
        del self._shards[number]
        return size


class _Shard:
    """One file being written, under a temporary name."""

    def __init__(self, root: Path, number: int, schema: pa.Schema, *, unit_rows: int) -> None:
        self._path = root / names.shard(number)
        self._temporary = self._path.with_name(f"{self._path.name}{TEMPORARY}{secrets.token_hex(4)}")
        self._unit_rows = unit_rows
        with disk_faults(str(self._path)):
            self._file: BinaryIO = open(self._temporary, "wb")  # noqa: SIM115 - closed by finish or abandon
        self._writer = _parquet_writer(self._file, schema, unit_rows)

    def write(self, rows: pa.Table) -> None:
        """Add row groups; all but a run's last have `unit_rows` rows."""
        with disk_faults(str(self._path)):
            self._writer.write_table(rows, row_group_size=self._unit_rows)

    def finish(self, before_naming: Callable[[], None]) -> int:
        """Make the file durable, give it its name, return its size."""
        with disk_faults(str(self._path)):
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            before_naming()
            os.replace(self._temporary, self._path)
        return size

    def abandon(self) -> None:
        """Remove what is there of the file."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _parquet_writer(file: BinaryIO, schema: pa.Schema, unit_rows: int) -> pq.ParquetWriter:
    """Open a writer as was measured to be fastest at zstd's sizes.

    Nobody looks for rows by value, so there are no statistics; ids and claims hardly repeat, so there is no
    dictionary of them. Row groups of a few rows gain nothing by either, and setting them up takes most of the time.
    """
    is_number = ROW_ID in schema.names and pa.types.is_integer(schema.field(ROW_ID).type)
    is_tiny = unit_rows < _TINY_ROWS
    repeating = [] if is_tiny else [name for name in schema.names if name not in (ROW_ID, ROW_CLAIM)]
    return pq.ParquetWriter(
        file,
        schema,
        compression="none" if is_tiny else "zstd",
        write_statistics=False,
        use_dictionary=cast(bool, repeating),
        column_encoding={ROW_ID: "DELTA_BINARY_PACKED"} if is_number else None,
    )
