"""Reading Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.coordinator.plan.class_labels import class_names, columns_of, with_names
from fsctx.coordinator.plan.inputs import Compression, Source
from fsctx.coordinator.plan.reading import BATCH_ROWS, check_distinct, faults_of, no_rows
from fsctx.errors import InputError

_BUFFER_BYTES = 1 << 20
"""Column chunks are read in pieces of this size, so that a file of one huge row group needs no more memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetReader:
    """See `Reader`."""

    source: Source
    columns: dict[str, pa.DataType]
    n_rows_guess: int
    sample: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """See `Reader.batches`."""
        with faults_of(self.source), _open(self.source) as file:
            names = class_names(file.schema_arrow)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns)):
                batch.validate(full=True)
                yield with_names(batch, names)


def open_parquet(source: Source) -> ParquetReader:
    """Read a file's footer."""
    if source.compression is not Compression.NONE:
        raise InputError(f"{source} is a compressed Parquet file: decompress it first (Parquet compresses within)")
    with faults_of(source), _open(source) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    check_distinct(source, schema.names)
    if n_rows == 0:
        raise no_rows(source)
    return ParquetReader(source=source, columns=columns_of(schema), n_rows_guess=n_rows)


def _open(source: Source) -> pq.ParquetFile:
    return pq.ParquetFile(str(source.path), buffer_size=_BUFFER_BYTES)
