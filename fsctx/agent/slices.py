"""Reads the claims of units from the shards."""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.agent.engines.base import Row
from fsctx.errors import Damaged, StoreError
from fsctx.protocol import names
from fsctx.protocol.geometry import Place
from fsctx.protocol.manifest import EXTRA, ROW_CLAIM, ROW_LABEL
from fsctx.protocol.shards import check_marks
from fsctx.store import Store

_KEPT_FOOTERS = 8


class Slices:
    """Reads row groups. The last shard stays open until `close`, and the footers of some are kept.

    So a visit's units cost an open per shard and their own bytes.
    """

    def __init__(self, store: Store, *, run: str) -> None:
        self._store = store
        self._run = run
        self._footers: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._number: int | None = None
        self._source: BinaryIO | None = None
        self._shard: pq.ParquetFile | None = None
        self._ready: dict[int, list[Row]] = {}
        """Unit → its rows, of units that were read together."""

    def close(self) -> None:
        """Close what is open, and forget what is ready; the next `read` opens it afresh."""
        self._ready.clear()
        self._close_shard()

    def read_together(self, places: Iterable[Place], columns: Sequence[str]) -> None:
        """Have slices ready for `read`, by one call of pyarrow a shard: each wakes a thread, and waits for it.

        What cannot be read so is read, and complained of, alone.
        """
        for _, group in groupby(sorted(places, key=attrgetter("shard", "row_group")), key=attrgetter("shard")):
            same = list(group)
            with contextlib.suppress(Damaged, StoreError):
                rows = iter(self._rows(same, columns))
                self._ready |= {place.unit: list(islice(rows, place.n_rows)) for place in same}

    def read(self, place: Place, columns: Sequence[str]) -> list[Row]:
        """Return a slice's rows in order, with the input's `columns`; empty claims as empty strings.

        Raises:
            Damaged: the shard is not what plan wrote.
            StoreError: it cannot be read now.
        """
        return self._ready.pop(place.unit, None) or self._rows([place], columns)

    def labels(self, place: Place) -> list[str | None]:
        """Return the gold labels of a slice's rows, as given; raises as `read` does."""
        found: list[str | None] = self._read([place], [ROW_LABEL]).column(ROW_LABEL).to_pylist()
        return found

    def _rows(self, places: Sequence[Place], columns: Sequence[str]) -> list[Row]:
        """Return the rows of slices of one shard, one after the other."""
        table = self._read(places, [ROW_CLAIM, *(EXTRA + column for column in columns)])
        numbers = (row for place in places for row in range(place.first_row, place.first_row + place.n_rows))
        claims = table.column(ROW_CLAIM).to_pylist()
        extras = [table.column(EXTRA + column).to_pylist() for column in columns]
        return [
            Row(
                row=row,
                claim=claim or "",
                columns={column: values[i] for column, values in zip(columns, extras, strict=True)},
            )
            for i, (row, claim) in enumerate(zip(numbers, claims, strict=True))
        ]

    def _read(self, places: Sequence[Place], wanted: Sequence[str]) -> pa.Table:
        """Return columns of slices of one shard."""
        name, groups = names.shard(places[0].shard), [place.row_group for place in places]
        try:
            shard = self._opened(places[0].shard)
            n_rows = [shard.metadata.row_group(group).num_rows for group in groups]
            table = shard.read_row_groups(groups, columns=list(wanted), use_threads=False)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise Damaged(f"{self._store.root}/{name} is damaged ({_line(error)}): restore it from a copy") from None
        planned = [place.n_rows for place in places]
        if n_rows != planned or table.num_rows != sum(planned):
            raise Damaged(
                f"{self._store.root}/{name}: row group {groups[0]} has {table.num_rows} rows, not {planned[0]}"
            )
        return table

    def _opened(self, number: int) -> pq.ParquetFile:
        if self._shard is None or number != self._number:
            self._close_shard()
            self._number, self._source = number, self._store.open(names.shard(number))
            shard = pq.ParquetFile(self._source, metadata=self._footers.get(number))
            check_marks(shard.metadata.metadata, run=self._run, number=number)
            self._keep(number, shard.metadata)
            self._shard = shard
        return self._shard

    def _close_shard(self) -> None:
        if self._source is not None:
            self._source.close()
        self._number = self._source = self._shard = None

    def _keep(self, shard: int, footer: pq.FileMetaData) -> None:
        self._footers[shard] = footer
        self._footers.move_to_end(shard)
        if len(self._footers) > _KEPT_FOOTERS:
            self._footers.popitem(last=False)


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
