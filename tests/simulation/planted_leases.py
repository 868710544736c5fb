"""Planted faults about leases, watching, leaving and people's commands. `mutants` tells what each stands for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fsctx.agent.loop as agent_loop
import fsctx.coordinator.retry as retrying
from fsctx.agent import watch
from fsctx.agent.behind import Behind
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.owners import Owners
from fsctx.agent.saver import Saver
from fsctx.agent.scout import Scout
from fsctx.agent.watch import Patience, Watch
from fsctx.errors import StoreError
from fsctx.protocol import buckets, leases, names
from fsctx.protocol.agents import AgentState
from fsctx.protocol.buckets import BucketView
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore, Store
from simulation.planted import Planted, Plants


def _removed_on_completion(original: Any) -> Any:
    def publish(self: Saver, work: Any) -> bool:
        is_mine: bool = original(self, work)
        self.store.remove(names.lease(bucket_of(work.lease_id.unit), work.lease_id))
        return is_mine

    return publish


removed_on_completion: Plants = (Planted(Saver, "publish", _removed_on_completion),)


def _look_by_lookups(_original: Any) -> Any:
    def look(store: Store, geometry: Geometry, bucket: int) -> BucketView:
        units = geometry.units_of(bucket)
        held = {unit: _highest(store, unit) for unit in units}
        done = frozenset(unit for unit in units if store.target(names.published(bucket, unit)) is not None)
        return BucketView(
            bucket=bucket,
            free=tuple(unit for unit in units if held[unit] < 0 and unit not in done),
            leased={unit: g for unit, g in held.items() if g >= 0 and unit not in done},
            done=done,
            failed=frozenset(),
        )

    return look


def _highest(store: Store, unit: int) -> int:
    generation = 0
    while leases.owner_of(store, LeaseId(unit, generation)) is not None:
        generation += 1
    return generation - 1


read_by_lookups: Plants = (Planted(buckets, "look", _look_by_lookups),)


def _expiry_by_mtime(original: Any) -> Any:
    def is_orphan(self: Owners, lease_id: LeaseId, since_s: float, now_s: float) -> bool:
        store: Any = self.store
        owner = self._of_lease.get(lease_id, "")
        if owner in ("", self.me) or owner.startswith("?"):
            return bool(original(self, lease_id, since_s, now_s))
        try:
            return bool(now_s - store._system.mtime(f"{store.root}/{names.session(owner)}") > self.patience.ttl_s)
        except OSError:
            return False

    return is_orphan


expiry_by_mtime: Plants = (Planted(Owners, "_is_orphan", _expiry_by_mtime),)


def _same_generation(original: Any) -> Any:
    def orphans(self: Owners, leased: Mapping[LeaseId, float], now_s: float) -> tuple[LeaseId, ...]:
        return tuple(LeaseId(i.unit, i.generation - 1) for i in original(self, leased, now_s))

    return orphans


def _remove_first(original: Any) -> Any:
    def take(self: Scout, ids: tuple[LeaseId, ...], *args: Any, is_takeover: bool) -> Any:
        for lease_id in ids if is_takeover else ():
            self.store.remove(names.lease(bucket_of(lease_id.unit), lease_id))
        return original(self, ids, *args, is_takeover=is_takeover)

    return take


generation_reused: Plants = (Planted(Owners, "orphans", _same_generation), Planted(Scout, "_take", _remove_first))


def _silent_from_the_start(original: Any) -> Any:
    def begin(session: Any, now_s: float) -> Watch:
        return replace(original(session, now_s), counter_since_s=now_s - 1e6)

    return begin


judged_by_one_look: Plants = (Planted(watch, "begin", _silent_from_the_start),)


def _silent_by_the_clock(_original: Any) -> Any:
    def is_silent(seen: Watch, now_s: float, patience: Patience) -> bool:
        return now_s - seen.counter_since_s >= patience.ttl_s

    return is_silent


judged_on_waking: Plants = (Planted(watch, "is_silent", _silent_by_the_clock),)


def _silent_at_the_last_look(_original: Any) -> Any:
    def is_silent(seen: Watch, now_s: float, patience: Patience) -> bool:
        return seen.looked_s - seen.counter_since_s >= patience.ttl_s

    return is_silent


judgement_kept: Plants = (Planted(watch, "is_silent", _silent_at_the_last_look),)


def _create_or(answer: bool) -> Any:
    def make(original: Any) -> Any:
        def create(self: PosixStore, name: str, content: bytes) -> bool:
            try:
                return bool(original(self, name, content))
            except StoreError:
                return answer

        return create

    return make


error_is_failure: Plants = (Planted(PosixStore, "create", _create_or(False)),)
error_is_success: Plants = (Planted(PosixStore, "create", _create_or(True)),)
never_given_back: Plants = (Planted(Heartbeat, "release", lambda original: lambda self, lease_id: None),)


def _not_if_nameless(original: Any) -> Any:
    def look(self: Owners, lease_id: LeaseId, now_s: float) -> None:
        if leases.owner_of(self.store, lease_id) is None:
            self._since_s[lease_id] = now_s  # looked at again as late as others
        else:
            original(self, lease_id, now_s)

    return look


nameless_is_alive: Plants = (Planted(Owners, "look", _not_if_nameless),)


def _record_first(_original: Any) -> Any:
    def put_back(store: Store, bucket: int, failed: list[int], token: str) -> list[int]:
        generations = leases.latest(store.list(names.bucket_folder(names.LEASES, bucket))) if failed else {}
        for unit in failed:
            store.remove(names.failed(bucket, unit))
            leases.take(store, LeaseId(unit, generations.get(unit, -1) + 1), leases.NOBODY, token=token)
        return failed

    return put_back


retry_out_of_order: Plants = (Planted(retrying, "_put_back", _record_first),)


def _without_baseline(original: Any) -> Any:
    def hear(self: Leaving, orders: Any) -> None:
        self._baseline = 0
        original(self, orders)

    return hear


order_for_ever: Plants = (Planted(Leaving, "hear", _without_baseline),)


def _left_first(original: Any) -> Any:
    def finish(self: Behind) -> None:
        self.heartbeat.say(at_once=True, state=AgentState.LEFT)
        original(self)

    return finish


left_too_early: Plants = (Planted(Behind, "finish", _left_first),)


def _to_the_end(original: Any) -> Any:
    def infer_all(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "should_stop": lambda: False})

    return infer_all


signal_heard_late: Plants = (Planted(agent_loop, "infer_all", _to_the_end),)
nothing_saved: Plants = (Planted(Loop, "_save", lambda original: lambda self, visit: None),)
