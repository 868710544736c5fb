"""Compaction: a finished bucket's files become one, so that a run of a million units leaves some thousand files.

The merged file stands before anything is removed. What it is made of never changes any more, so whoever
merges, and however often, the rows are the same: replacing it by another merge changes nothing. The folder of
the results vanishes by one rename, so that a reader sees either all of it or a bucket that was compacted.
"""

import io
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.errors import Damaged, Missing
from fsctx.protocol import buckets, names, results, verdicts
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.names import LeaseId
from fsctx.store import Store

ROW_GROUP_ROWS = 65_536
"""A row group ends with the unit that brings it to so many rows."""

_KEPT_GROUPS = 4

_RUN, _GROUPS = b"fsctx.run", b"fsctx.first_units"

Labels = Sequence[tuple[str, ...]]
"""Task → its labels."""


def compact(store: Store, manifest: Manifest, labels: Labels, bucket: int, *, claimant: str | None = None) -> bool:
    """Merge a bucket whose units are all done, then remove its files; False if it is not finished. Safe to repeat.

    With a `claimant`, who is first merges and the others need not. It is courtesy, and no claim is ever given up:
    a claimant that died is made up for by a call without one.

    Raises:
        Damaged: a result is not whole; nothing was removed.
        StoreError: the filesystem refused; the same call again goes on.
    """
    view = buckets.look(store, manifest.geometry, bucket)
    if not view.is_compacted:
        if len(view.done) < len(manifest.geometry.units_of(bucket)):
            return False
        try:
            if claimant is not None and not store.create(names.merger(bucket), claimant.encode()):
                return False
            content = _merged(store, manifest, labels, bucket)
        except Missing:
            return False  # somebody else merged it and removes it right now
        store.replace(names.compacted(bucket), content)
    for kind in (names.RESULTS, names.PARTIAL, names.FAILED, names.LEASES):
        store.remove_folder(names.bucket_folder(kind, bucket))
    return True


def uncompacted(store: Store) -> list[int]:
    """Return the buckets that were not compacted, or not to the end, by one listing: the leases go last."""
    return sorted(int(name) for name in store.list(names.LEASES) if name.isdecimal())


class CompactedBuckets:
    """Reads units from compacted buckets. Keeps the row groups that were read last. Thread-safe."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, tuple[str, ...]], tuple[int, pa.Table]] = OrderedDict()

    def read(self, unit: int, labels: tuple[str, ...]) -> pa.Table:
        """Return a unit's verdicts in the order of its rows.

        Raises:
            Missing: the bucket is not compacted.
            Damaged: its file is not what `compact` wrote.
        """
        geometry = self._manifest.geometry
        with self._lock:
            first, table = self._find(unit, labels) or self._load(unit, labels)
        start = sum(geometry.place(other).n_rows for other in range(first, unit))
        return table.slice(start, geometry.place(unit).n_rows)

    def _find(self, unit: int, labels: tuple[str, ...]) -> tuple[int, pa.Table] | None:
        for (last, own), (first, table) in self._kept.items():
            if first <= unit <= last and own == labels:
                return first, table
        return None

    def _load(self, unit: int, labels: tuple[str, ...]) -> tuple[int, pa.Table]:
        where = names.compacted(bucket_of(unit))
        with self._store.open(where) as source:
            try:
                first, last, table = self._read_group(source, unit, labels)
            except (pa.ArrowException, OSError, ValueError, IndexError, KeyError) as error:
                raise Damaged(f"{where} is not what was written there ({_line(error)}): restore it") from None
        self._kept[last, labels] = first, table
        if len(self._kept) > _KEPT_GROUPS:
            self._kept.popitem(last=False)
        return first, table

    def _read_group(self, source: BinaryIO, unit: int, labels: tuple[str, ...]) -> tuple[int, int, pa.Table]:
        """Return the first and last unit of a row group, and its rows."""
        file = pq.ParquetFile(source)
        marks = file.schema_arrow.metadata or {}
        if marks.get(_RUN) != self._manifest.run.encode():
            raise ValueError(f"it is of another run than {self._manifest.run}")
        firsts = json.loads(marks[_GROUPS])
        group = sum(first <= unit for first in firsts) - 1
        schema = verdicts.schema(labels)
        table = file.read_row_group(group, columns=schema.names, use_threads=False)
        ends = [*firsts[1:], self._manifest.geometry.units_of(bucket_of(unit)).stop]
        return firsts[group], ends[group] - 1, table.select(schema.names).replace_schema_metadata().cast(schema)


def read_result(store: Store, manifest: Manifest, labels: tuple[str, ...], lease_id: LeaseId) -> pa.Table:
    """Read the verdicts computed under a lease, in the order in which they stand in its file.

    Raises:
        Missing: the file vanished: its bucket was compacted meanwhile, or it is damaged.
        Damaged: it is not what an agent publishes.
    """
    where = names.result(bucket_of(lease_id.unit), lease_id)
    with store.open(where) as source:
        return verdicts.from_parquet(source, run=manifest.run, unit=lease_id.unit, labels=labels, where=where)


def _merged(store: Store, manifest: Manifest, labels: Labels, bucket: int) -> bytes:
    tasks = sorted({manifest.geometry.task_of(unit) for unit in manifest.geometry.units_of(bucket)})
    schema = verdicts.schema(list(dict.fromkeys(label for task in tasks for label in labels[task])))
    groups = list(_groups(store, manifest, labels, bucket))
    marks = {_RUN: manifest.run.encode(), _GROUPS: json.dumps([first for first, _ in groups]).encode()}
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema.with_metadata(marks), compression="zstd") as writer:
        for _, tables in groups:
            aligned = [_aligned(table, schema) for table in tables]
            writer.write_table(pa.concat_tables(aligned), row_group_size=ROW_GROUP_ROWS * 1024)
    return sink.getvalue()


def _groups(store: Store, manifest: Manifest, labels: Labels, bucket: int) -> Iterator[tuple[int, list[pa.Table]]]:
    """Yield the first unit and the tables of each row group."""
    tables: list[pa.Table] = []
    first = n_rows = 0
    for unit in manifest.geometry.units_of(bucket):
        first = first if tables else unit
        tables.append(_whole(store, manifest, labels, unit))
        n_rows += tables[-1].num_rows
        if n_rows >= ROW_GROUP_ROWS:
            yield first, tables
            tables, n_rows = [], 0
    if tables:
        yield first, tables


def _whole(store: Store, manifest: Manifest, labels: Labels, unit: int) -> pa.Table:
    """Read a unit's verdicts and check that they are exactly its rows."""
    place = manifest.geometry.place(unit)
    winner = results.winning(store, unit)
    if winner is None:
        raise Missing(f"unit {unit} is not published any more")
    table = read_result(store, manifest, labels[place.task], winner).sort_by("row")
    if table.column("row").to_pylist() != list(range(place.first_row, place.first_row + place.n_rows)):
        raise Damaged(f"the published result of unit {unit} does not hold exactly the rows of its slice")
    return table


def _aligned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema.remove_metadata())


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
