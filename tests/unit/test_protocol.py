"""The protocol's records and steps on a local folder."""

from pathlib import Path

import pytest

from fsctx.errors import Damaged, InputError
from fsctx.protocol import agents, buckets, codec, failures, leases, names, orders, results
from fsctx.protocol.agents import AgentState, Ledger, Session
from fsctx.protocol.failures import Failure
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.leases import Lease
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore

GEOMETRY = Geometry(n_rows=100, unit_rows=10, slices_per_shard=4, n_tasks=1)


@pytest.fixture
def store(tmp_path: Path) -> PosixStore:
    made = PosixStore(tmp_path)
    for kind in names.BUCKETED:
        made.make_folder(names.bucket_folder(kind, 0))
    made.make_folder("agents/a")
    made.make_folder(names.CONTROL)
    return made


def test_one_generation_has_one_holder(store: PosixStore) -> None:
    assert leases.take(store, LeaseId(3, 0), "a")
    assert not leases.take(store, LeaseId(3, 0), "b")
    assert leases.take(store, LeaseId(3, 1), "b")
    assert leases.owner_of(store, LeaseId(3, 0)) == "a"
    assert leases.latest(store.list("leases/000000")) == {3: 1}


def test_a_lease_whose_reply_was_lost_is_still_the_takers(store: PosixStore) -> None:
    (store.root / names.lease(0, LeaseId(3, 0))).write_bytes(codec.encode(Lease(owner="a")))
    assert leases.take(store, LeaseId(3, 0), "a")
    assert not leases.take(store, LeaseId(3, 0), "b")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 7, "owner": "a"}', b'{"schema": 1}'])
def test_a_lease_that_says_nothing_has_no_owner(store: PosixStore, content: bytes) -> None:
    (store.root / names.lease(0, LeaseId(3, 0))).write_bytes(content)
    assert leases.owner_of(store, LeaseId(3, 0)) is None


def test_law_3_the_first_published_result_counts(store: PosixStore) -> None:
    results.write(store, LeaseId(3, 1), b"second")
    results.write(store, LeaseId(3, 0), b"first")
    assert results.publish(store, LeaseId(3, 1)) == LeaseId(3, 1)
    assert results.publish(store, LeaseId(3, 0)) == LeaseId(3, 1)
    assert results.publish(store, LeaseId(3, 1)) == LeaseId(3, 1)
    assert store.read(names.published(0, 3)) == b"second"
    assert results.winning(store, 3) == LeaseId(3, 1)
    assert results.winning(store, 4) is None


@pytest.mark.parametrize("target", ["../../secrets", "00000004.0.parquet", "/etc/passwd", "00000003.0"])
def test_a_symlink_that_no_agent_publishes_is_damage(store: PosixStore, target: str) -> None:
    (store.root / names.published(0, 3)).symlink_to(target)
    with pytest.raises(Damaged, match="000000/00000003"):
        results.winning(store, 3)


def test_a_bucket_says_what_is_free_leased_done_and_failed(store: PosixStore) -> None:
    for unit in (1, 2, 3, 4):
        leases.take(store, LeaseId(unit, 0), "a")
    leases.take(store, LeaseId(2, 1), "b")
    results.publish(store, LeaseId(1, 0))
    failures.record_failure(store, Failure(unit=3, generation=0, reason="r", agent="a", host="h"))
    (store.root / "leases/000000/.nfs0001").touch()
    (store.root / "results/000000/00000005.0.parquet.tmp-ab").touch()
    view = buckets.look(store, GEOMETRY, 0)
    assert view.free == (0, 5, 6, 7, 8, 9)
    assert view.leased == {2: 1, 4: 0}
    assert view.done == {1}
    assert view.failed == {3}
    assert not view.is_finished


def test_a_result_outweighs_a_failure(store: PosixStore) -> None:
    failures.record_failure(store, Failure(unit=3, generation=0, reason="r", agent="a", host="h"))
    results.publish(store, LeaseId(3, 1))
    assert buckets.look(store, GEOMETRY, 0).failed == frozenset()


def test_a_session_has_one_size_and_a_torn_one_is_told(store: PosixStore) -> None:
    session = Session(agent="a", counter=1, progress=0, state=AgentState.RUNNING, ledger=Ledger(rows_done=5))
    data = agents.encode_session(session)
    assert len(data) == agents.SESSION_BYTES
    assert agents.decode_session(data, where="here") == session
    other = agents.encode_session(Session(agent="a", counter=2, progress=0, state=AgentState.LEFT))
    with pytest.raises(Damaged, match="here"):
        agents.decode_session(other[:40] + data[40:], where="here")
    for torn in (b"", data[:100], other[:40] + data[40:]):
        store.rewrite(names.session("a"), torn)
        assert agents.read_session(store, "a") is None or len(torn) < agents.SESSION_BYTES


def test_a_session_with_all_it_can_release_fits() -> None:
    released = tuple(f"{unit:08d}.1234" for unit in range(agents.MAX_RELEASED))
    session = Session(
        agent="h" * 60, counter=10**12, progress=10**12, state=AgentState.RUNNING, why="w" * 300, released=released
    )
    assert len(agents.encode_session(session)) == agents.SESSION_BYTES


def test_orders_are_numbered_and_never_removed(store: PosixStore) -> None:
    assert orders.read_orders(store).last == 0
    assert [orders.give_order(store, kind) for kind in ("drain", "stop", "drain")] == [1, 2, 3]
    standing = orders.read_orders(store)
    assert (standing.stop, standing.drain) == (2, 3)


def test_unknown_fields_are_ignored_and_unknown_schemas_refused() -> None:
    record = b'{"schema": 1, "owner": "a", "token": "", "later": [1]}'
    assert codec.decode(record, Lease, where="x") == Lease(owner="a")
    with pytest.raises(InputError, match="schema 3"):
        codec.decode(b'{"schema": 3}', Lease, where="x")
    with pytest.raises(Damaged, match="x is not a valid Lease"):
        codec.decode(b'{"schema": 1}', Lease, where="x")
