"""Reads the claims of units from the shards."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.agent.engines.base import Row
from fsctx.errors import Damaged
from fsctx.protocol import names
from fsctx.protocol.geometry import Place
from fsctx.protocol.manifest import EXTRA, ROW_CLAIM, ROW_LABEL
from fsctx.store import Store

_KEPT_FOOTERS = 8


class Slices:
    """Reads row groups. The last shard stays open until `close`, and the footers of some are kept.

    So a visit's units cost an open per shard and their own bytes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._footers: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._number: int | None = None
        self._source: BinaryIO | None = None
        self._shard: pq.ParquetFile | None = None

    def close(self) -> None:
        """Close what is open; the next `read` opens it afresh."""
        if self._source is not None:
            self._source.close()
        self._number = self._source = self._shard = None

    def read(self, place: Place, columns: Sequence[str]) -> list[Row]:
        """Return a slice's rows in order, with the input's `columns`; empty claims as empty strings.

        Raises:
            Damaged: the shard is not what plan wrote.
            StoreError: it cannot be read now.
        """
        table = self._read(place, [ROW_CLAIM, *(EXTRA + column for column in columns)])
        return _rows(table, place.first_row, columns)

    def labels(self, place: Place) -> list[str | None]:
        """Return the gold labels of a slice's rows, as given; raises as `read` does."""
        found: list[str | None] = self._read(place, [ROW_LABEL]).column(ROW_LABEL).to_pylist()
        return found

    def _read(self, place: Place, wanted: Sequence[str]) -> pa.Table:
        name = names.shard(place.shard)
        try:
            table = self._opened(place.shard).read_row_group(place.row_group, columns=list(wanted), use_threads=False)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise Damaged(f"{self._store.root}/{name} is damaged ({_line(error)}): restore it from a copy") from None
        if table.num_rows != place.n_rows:
            raise Damaged(
                f"{self._store.root}/{name}: row group {place.row_group} has {table.num_rows} rows, not {place.n_rows}"
            )
        return table

    def _opened(self, number: int) -> pq.ParquetFile:
        if self._shard is None or number != self._number:
            self.close()
            self._number, self._source = number, self._store.open(names.shard(number))
            self._shard = pq.ParquetFile(self._source, metadata=self._footers.get(number))
            self._keep(number, self._shard.metadata)
        return self._shard

    def _keep(self, shard: int, footer: pq.FileMetaData) -> None:
        self._footers[shard] = footer
        self._footers.move_to_end(shard)
        if len(self._footers) > _KEPT_FOOTERS:
            self._footers.popitem(last=False)


def _rows(table: pa.Table, first_row: int, columns: Sequence[str]) -> list[Row]:
    claims = table.column(ROW_CLAIM).to_pylist()
    extras = [table.column(EXTRA + column).to_pylist() for column in columns]
    return [
        Row(
            row=first_row + i,
            claim=claim or "",
            columns={column: values[i] for column, values in zip(columns, extras, strict=True)},
        )
        for i, claim in enumerate(claims)
    ]


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
