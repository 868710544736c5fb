"""Planted faults about results, partials and compaction. `mutants` tells what each stands for."""

from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

import fsctx.agent.ahead as agent_ahead
import fsctx.agent.saver as agent_saver
from fsctx.agent.saver import Saver
from fsctx.errors import Damaged, Missing, StoreError
from fsctx.protocol import buckets, compaction, names, results, verdicts
from fsctx.protocol.buckets import BucketView
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.names import LeaseId
from fsctx.protocol.published import Results
from fsctx.store import PosixStore, Store
from simulation.planted import Planted, Plants


def _rename_over(_original: Any) -> Any:
    def publish(self: PosixStore, name: str, target: str) -> str:
        temporary = f"{name}.tmp-{target}"
        self.remove(temporary)
        self._once(temporary, lambda path: self._system.symlink(target, path))
        self._once(name, lambda path: self._system.rename(self._path(temporary), path))
        return target

    return publish


by_rename: Plants = (Planted(PosixStore, "publish", _rename_over),)


def _first(_original: Any) -> Any:
    def write(self: Saver, work: Any, content: bytes) -> None:
        pass

    return write


def _then_write(original: Any) -> Any:
    def publish(self: Saver, work: Any) -> bool:
        is_mine: bool = original(self, work)
        results.write(self.store, work.lease_id, self.encode(work))
        return is_mine

    return publish


before_whole: Plants = (Planted(Saver, "write", _first), Planted(Saver, "publish", _then_write))


def _write_again(original: Any) -> Any:
    def publish(self: Saver, work: Any) -> bool:
        try:
            return bool(original(self, work))
        except StoreError:
            self.write(work, self.encode(work))
            raise

    return publish


written_again: Plants = (Planted(Saver, "publish", _write_again),)


def _published_anyhow(original: Any) -> Any:
    def publish(self: PosixStore, name: str, target: str) -> str:
        try:
            return str(original(self, name, target))
        except StoreError:
            return target

    return publish


error_is_success: Plants = (Planted(PosixStore, "publish", _published_anyhow),)


def _any_file(original: Any) -> Any:
    def look(store: Store, geometry: Geometry, bucket: int) -> BucketView:
        view: BucketView = original(store, geometry, bucket)
        listing = store.list(names.bucket_folder(names.RESULTS, bucket))
        done = view.done | {found.unit for name in listing if (found := names.parse_result(name)) is not None}
        leased = {unit: g for unit, g in view.leased.items() if unit not in done}
        return replace(view, done=done, leased=leased, free=tuple(unit for unit in view.free if unit not in done))

    return look


any_file_is_done: Plants = (Planted(buckets, "look", _any_file),)


def _by_the_last_part(original: Any) -> Any:
    def parse(target: str, unit: int) -> LeaseId:
        found: LeaseId = original(target.rpartition("/")[2], unit)
        return found

    return parse


def _through_the_name(_original: Any) -> Any:
    def read_result(store: Store, manifest: Manifest, labels: tuple[str, ...], lease_id: LeaseId) -> pa.Table:
        where = names.published(bucket_of(lease_id.unit), lease_id.unit)
        with store.open(where) as source:
            return verdicts.from_parquet(source, run=manifest.run, unit=lease_id.unit, labels=labels, where=where)

    return read_result


followed_out: Plants = (
    Planted(results, "_parse", _by_the_last_part),
    Planted(compaction, "read_result", _through_the_name),
)


def _whatever_it_says(_original: Any) -> Any:
    def from_parquet(source: BinaryIO, *, where: str, **_expected: Any) -> pa.Table:
        try:
            return pq.ParquetFile(source).read(use_threads=False).replace_schema_metadata()
        except (pa.ArrowException, OSError):
            raise Damaged(f"{where} is not Parquet") from None

    return from_parquet


adopted_unseen: Plants = (Planted(verdicts, "from_parquet", _whatever_it_says),)


def _all_rows(_original: Any) -> Any:
    def merge_saved(tables: Any, _place: Any) -> pa.Table | None:
        found = list(tables)
        return found[0] if found and found[0].num_rows else None

    return merge_saved


rows_unchecked: Plants = (Planted(agent_saver, "merge_saved", _all_rows),)


def _nothing_done(original: Any) -> Any:
    def begin(lease_id: Any, place: Any, rows: Any, adopted: Any = None, *rest: Any) -> Any:
        return replace(original(lease_id, place, rows, None, *rest), adopted=adopted)

    return begin


adopted_and_computed: Plants = (Planted(agent_ahead, "begin", _nothing_done),)


def _damaged_where_refused(original: Any) -> Any:
    def open_file(self: PosixStore, name: str) -> BinaryIO:
        try:
            file: BinaryIO = original(self, name)
        except Missing:
            raise
        except StoreError as error:
            raise Damaged(str(error)) from None
        return file

    return open_file


error_is_damage: Plants = (Planted(PosixStore, "open", _damaged_where_refused),)


def _absent_is_unpublished(_original: Any) -> Any:
    def compacted(self: Results, unit: int, labels: tuple[str, ...]) -> pa.Table | None:
        try:
            return self.compacted.read(unit, labels)
        except Missing:
            return None

    return compacted


absent_is_unpublished: Plants = (Planted(Results, "_compacted", _absent_is_unpublished),)


def _remove_first(_original: Any) -> Any:
    def compact(store: Store, manifest: Manifest, labels: Any, bucket: int, **_: object) -> bool:
        view = buckets.look(store, manifest.geometry, bucket)
        if view.is_compacted or len(view.done) < len(manifest.geometry.units_of(bucket)):
            return False
        content = compaction._merged(store, manifest, labels, bucket)
        for kind in (names.RESULTS, names.PARTIAL, names.FAILED, names.LEASES):
            store.remove_folder(names.bucket_folder(kind, bucket))
        store.replace(names.compacted(bucket), content)
        return True

    return compact


removed_before_merged: Plants = (Planted(compaction, "compact", _remove_first),)
