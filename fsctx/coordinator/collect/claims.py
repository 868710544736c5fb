"""Reading the claims of a run back, slice by slice."""

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.errors import Damaged, Missing
from fsctx.protocol import names
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.shards import check_marks
from fsctx.store import Store


class Claims:
    """The claims of a run, for reading slices in order. Keeps one shard open.

    Raises (at any call):
        Damaged: a shard is missing, unreadable, or not as planned; names it.
    """

    def __init__(self, store: Store, geometry: Geometry, *, run: str, columns: Sequence[str]) -> None:
        self._store = store
        self._run = run
        self._geometry = geometry
        self._columns = list(columns)
        self._number = 0
        self._open = self._open_shard(0)
        self.schema = self._schema_of(self._open)
        """Names and types of the columns that `read` returns, in the order asked for."""

    def read(self, slice_number: int) -> pa.Table:
        """Return the claims of a slice."""
        shard, row_group = divmod(slice_number, self._geometry.slices_per_shard)
        self._turn_to(shard)
        where = names.shard(shard)
        with _damage_named(where):
            table = self._open.read_row_group(row_group, columns=self._columns)
        expected = self._geometry.rows_of_slice(slice_number)
        if table.num_rows != expected:
            raise Damaged(f"{where} has {table.num_rows} rows in row group {row_group}, not {expected}: restore it")
        return table.select(self._columns).replace_schema_metadata(None)

    def close(self) -> None:
        """Close the shard that is open."""
        self._open.close(force=True)

    def _turn_to(self, shard: int) -> None:
        if shard != self._number:
            self.close()
            self._open, self._number = self._open_shard(shard), shard
            if not self._schema_of(self._open).equals(self.schema):
                raise Damaged(f"{names.shard(shard)} has other columns than {names.shard(0)}: restore it")

    def _open_shard(self, shard: int) -> pq.ParquetFile:
        where = names.shard(shard)
        with _damage_named(where), contextlib.ExitStack() as if_refused:
            source = if_refused.enter_context(self._store.open(where))
            file = pq.ParquetFile(source)
            self._check(file, shard)
            if_refused.pop_all()
            return file

    def _check(self, file: pq.ParquetFile, shard: int) -> None:
        """Raise where a shard is not as planned."""
        geometry = self._geometry
        check_marks(file.metadata.metadata, run=self._run, number=shard)
        expected = min(geometry.slices_per_shard, geometry.n_slices - shard * geometry.slices_per_shard)
        if file.num_row_groups != expected:
            raise Damaged(f"{names.shard(shard)} has {file.num_row_groups} row groups, not {expected}: restore it")
        found = file.schema_arrow.names
        for name in self._columns:
            if name not in found:
                raise Damaged(f"{names.shard(shard)} has no column {name!r}, only {found}: restore it")

    def _schema_of(self, file: pq.ParquetFile) -> pa.Schema:
        return pa.schema([file.schema_arrow.field(name) for name in self._columns])


@contextlib.contextmanager
def _damage_named(where: str) -> Iterator[None]:
    """Name the shard in whatever is wrong with it."""
    try:
        yield
    except Missing:
        raise Damaged(f"{where} is not there: restore it") from None
    except (pa.ArrowException, OSError) as error:
        seen = (str(error) or type(error).__name__).splitlines()[0]
        raise Damaged(f"{where} is not readable Parquet ({seen}): restore it") from None
