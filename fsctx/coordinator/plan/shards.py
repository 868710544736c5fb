"""Writing the shards: Parquet files whose row groups are the run's slices."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.coordinator.plan.faults import disk_faults
from fsctx.protocol import names
from fsctx.protocol.manifest import ROW_CLAIM, ROW_ID
from fsctx.store.base import TEMPORARY

_FLUSH_ROWS = 65_536
"""So many rows are gathered before they are written, or one slice where that is more."""


class ShardWriter:
    """Writes rows, in order, as shards of `slices_per_shard` row groups of exactly `unit_rows` rows each.

    Only the last row group of all may be short. A shard gets its name when it is whole and durable.
    Memory is bounded by one slice or `_FLUSH_ROWS` rows. Use as a context manager; `finish` at the end.
    """

    def __init__(self, root: Path, schema: pa.Schema, *, unit_rows: int, slices_per_shard: int) -> None:
        self.n_rows = 0
        self.n_bytes = 0
        self._root = root
        self._schema = schema
        self._unit_rows = unit_rows
        self._shard_rows = unit_rows * slices_per_shard
        self._flush_rows = -(-_FLUSH_ROWS // unit_rows) * unit_rows
        self._held: list[pa.RecordBatch] = []
        self._n_held = 0
        self._shard: _Shard | None = None
        self._n_shards = 0

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *failure: object) -> None:
        if self._shard is not None:
            self._shard.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._held.append(batch)
        self._n_held += batch.num_rows
        if self._n_held >= self._flush_rows:
            self._flush(self._n_held - self._n_held % self._unit_rows)

    def finish(self) -> None:
        """Write what is left and close the last shard."""
        self._flush(self._n_held)
        self._close_shard()

    def _flush(self, n_rows: int) -> None:
        """Write the first rows held, shard by shard."""
        table = pa.Table.from_batches(self._held, self._schema)
        for start, stop in self._cuts(n_rows):
            if self._shard is None:
                self._shard = _Shard(self._root, self._n_shards, self._schema)
            self._shard.write(table.slice(start, stop - start), self._unit_rows)
            self.n_rows += stop - start
            if self.n_rows % self._shard_rows == 0:
                self._close_shard()
        self._held = table.slice(n_rows).to_batches()
        self._n_held = table.num_rows - n_rows

    def _cuts(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """Cut the first rows held where shards end."""
        start = 0
        while start < n_rows:
            left = self._shard_rows - (self.n_rows % self._shard_rows)
            stop = min(start + left, n_rows)
            yield start, stop
            start = stop

    def _close_shard(self) -> None:
        if self._shard is not None:
            self.n_bytes += self._shard.finish()
            self._shard = None
            self._n_shards += 1


class _Shard:
    """One file being written, under a temporary name."""

    def __init__(self, root: Path, number: int, schema: pa.Schema) -> None:
        self._path = root / names.shard(number)
        self._temporary = self._path.with_name(f"{self._path.name}{TEMPORARY}{secrets.token_hex(4)}")
        with disk_faults(str(self._path)):
            self._file: BinaryIO = open(self._temporary, "wb")  # noqa: SIM115 - closed by finish or abandon
        self._writer = _parquet_writer(self._file, schema)

    def write(self, table: pa.Table, unit_rows: int) -> None:
        with disk_faults(str(self._path)):
            self._writer.write_table(table, row_group_size=unit_rows)

    def finish(self) -> int:
        """Make the file durable, give it its name, return its size."""
        with disk_faults(str(self._path)):
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
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


def _parquet_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a writer as was measured to be fastest at zstd's sizes.

    Nobody looks for rows by value, so there are no statistics; ids and claims hardly repeat, so there is no
    dictionary of them.
    """
    is_number = pa.types.is_integer(schema.field(ROW_ID).type)
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        write_statistics=False,
        use_dictionary=cast(bool, [name for name in schema.names if name not in (ROW_ID, ROW_CLAIM)]),
        column_encoding={ROW_ID: "DELTA_BINARY_PACKED"} if is_number else None,
    )
