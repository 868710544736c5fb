"""Reading Arrow's own files, streams (which `datasets` saves) and random-access ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fsctx.coordinator.plan.class_labels import class_names, columns_of, with_names
from fsctx.coordinator.plan.inputs import FILE_MAGIC, Compression, Source
from fsctx.coordinator.plan.reading import BATCH_ROWS, check_distinct, faults_of, no_rows
from fsctx.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowReader:
    """See `Reader`."""

    source: Source
    columns: dict[str, pa.DataType]
    n_rows_guess: int
    sample: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """See `Reader.batches`."""
        with faults_of(self.source), pa.memory_map(str(self.source.path)) as file:
            for batch in _batches(file):
                batch.validate(full=True)
                named = with_names(batch.select(list(columns)), class_names(batch.schema))
                for start in range(0, named.num_rows, BATCH_ROWS):
                    yield named.slice(start, BATCH_ROWS)


def open_arrow(source: Source) -> ArrowReader:
    """Read a file's schema and count its rows, which reads no more than the batches' headers."""
    if source.compression is not Compression.NONE:
        raise InputError(f"{source} is a compressed Arrow file: decompress it first")
    with faults_of(source), pa.memory_map(str(source.path)) as file:
        schema = _schema(file)
        n_rows = sum(batch.num_rows for batch in _batches(file))
    check_distinct(source, schema.names)
    if n_rows == 0:
        raise no_rows(source)
    return ArrowReader(source=source, columns=columns_of(schema), n_rows_guess=n_rows)


def _is_file(file: pa.MemoryMappedFile) -> bool:
    file.seek(0)
    head = file.read(len(FILE_MAGIC))
    file.seek(0)
    return bool(head == FILE_MAGIC)


def _schema(file: pa.MemoryMappedFile) -> pa.Schema:
    return pa.ipc.open_file(file).schema if _is_file(file) else pa.ipc.open_stream(file).schema


def _batches(file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    if _is_file(file):
        reader = pa.ipc.open_file(file)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(file)
