"""Orders to leave, and failed units put back."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, add_agent, fabricate, fail_unit, finish_unit

from fsctx.cli.retry import retry as retry_command
from fsctx.cli.stop import stop as stop_command
from fsctx.coordinator.retry import retry
from fsctx.coordinator.stop import stop
from fsctx.errors import InputError, StoreError
from fsctx.protocol import buckets, leases, names, orders
from fsctx.protocol.agents import AgentState
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    """600 units in three buckets."""
    return fabricate(tmp_path / "run", n_rows=600, unit_rows=1, slices_per_shard=300)


def test_each_order_to_leave_is_a_new_one(run: FabricatedRun) -> None:
    assert stop(run.store, "drain").number == 1
    assert stop(run.store, "stop").number == 2
    assert orders.read_orders(run.store) == orders.Orders(drain=1, stop=2)


def test_stop_says_how_many_agents_seem_alive(run: FabricatedRun) -> None:
    assert stop(run.store, "stop").n_alive == 0
    add_agent(run, "one")
    add_agent(run, "two", state=AgentState.LEFT)
    assert stop(run.store, "stop").n_alive == 1


def test_stopping_what_is_no_run_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        stop(PosixStore(tmp_path), "stop")
    assert list(tmp_path.iterdir()) == []


def test_the_stop_command_names_the_order(run: FabricatedRun) -> None:
    assert "save and leave (order 1)" in CliRunner().invoke(stop_command, [str(run.root)]).output
    assert "finish the units" in CliRunner().invoke(stop_command, [str(run.root), "--drain"]).output


def test_with_nothing_failed_retry_succeeds(run: FabricatedRun) -> None:
    finish_unit(run, 599)
    done = CliRunner().invoke(retry_command, [str(run.root)])
    assert (done.exit_code, done.output) == (0, "nothing to put back\n")


def test_all_failed_units_are_put_back_as_leases_of_nobody(run: FabricatedRun) -> None:
    for unit in (3, 300, 599):
        fail_unit(run, unit, generation=4)
    assert retry(run.store, (), token="t").units == (3, 300, 599)
    for unit in (3, 300, 599):
        view = buckets.look(run.store, run.geometry, unit // 256)
        assert view.failed == frozenset()
        assert view.leased[unit] == 5
        assert leases.owner_of(run.store, LeaseId(unit, 5)) == leases.NOBODY


def test_only_the_named_units_are_put_back(run: FabricatedRun) -> None:
    fail_unit(run, 3)
    fail_unit(run, 4)
    done = retry(run.store, [4, 5, 4], token="t")
    assert (done.units, done.not_failed) == ((4,), (5,))
    assert buckets.look(run.store, run.geometry, 0).failed == {3}


def test_retry_again_does_nothing(run: FabricatedRun) -> None:
    fail_unit(run, 3)
    retry(run.store, (), token="t")
    assert retry(run.store, (), token="u").units == ()
    assert buckets.look(run.store, run.geometry, 0).leased == {3: 1}


def test_a_failed_unit_that_was_done_after_all_is_left_alone(run: FabricatedRun) -> None:
    fail_unit(run, 3)
    finish_unit(run, 3, generation=1)
    assert retry(run.store, (), token="t").units == ()


class DiesBeforeRemoving(PosixStore):
    """A store whose user is killed before it can remove anything."""

    def remove(self, name: str) -> None:
        raise StoreError(f"{name}: killed")


def test_after_a_crash_between_lease_and_removal_the_same_command_completes(run: FabricatedRun) -> None:
    fail_unit(run, 3)
    with pytest.raises(StoreError):
        retry(DiesBeforeRemoving(run.root), (), token="t")
    assert buckets.look(run.store, run.geometry, 0).failed == {3}
    assert retry(run.store, (), token="u").units == (3,)
    assert buckets.look(run.store, run.geometry, 0).leased == {3: 2}


@pytest.mark.parametrize("unit", [600, 10**12])
def test_an_unknown_unit_is_refused_and_nothing_is_changed(run: FabricatedRun, unit: int) -> None:
    fail_unit(run, 3)
    with pytest.raises(InputError, match="this run has units 0 to 599"):
        retry(run.store, [3, unit], token="t")
    assert run.store.list(names.bucket_folder(names.FAILED, 0)) == ["00000003.json"]
