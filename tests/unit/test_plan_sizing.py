"""How many claims make a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsctx.coordinator.plan.sizing import MAX_UNITS, choose_unit_rows, lay_out, slices_per_shard, smallest_unit_rows
from fsctx.errors import InputError
from fsctx.protocol.geometry import Geometry


def test_a_small_model_gets_enough_units_to_share() -> None:
    assert choose_unit_rows(10_000, n_tasks=1, n_params=[0.0]) == 157


def test_a_large_model_gets_units_of_some_tens_of_seconds() -> None:
    # 2 * 1.7e9 parameters * 40 tokens at 1 TFLOP/s are 0.136 s a claim
    assert choose_unit_rows(10_000_000, n_tasks=1, n_params=[1.7e9]) == 220


def test_the_largest_model_of_a_sweep_decides() -> None:
    assert choose_unit_rows(1_000_000, n_tasks=2, n_params=[1.35e8, 1.7e9]) == 220


def test_a_unit_has_sixteen_rows_where_there_are_so_many() -> None:
    assert choose_unit_rows(100, n_tasks=1, n_params=[7e10]) == 16
    assert choose_unit_rows(5, n_tasks=1, n_params=[7e10]) == 5


@given(st.integers(1, 10**9), st.integers(1, 500), st.floats(0, 1e12))
def test_the_choice_never_makes_more_units_than_a_run_may_have(n_rows: int, n_tasks: int, params: float) -> None:
    unit_rows = choose_unit_rows(n_rows, n_tasks=n_tasks, n_params=[params])
    assert lay_out(n_rows, unit_rows=unit_rows, n_tasks=n_tasks).n_units <= MAX_UNITS


@given(st.integers(1, 10**9), st.integers(1, 500))
def test_the_smallest_unit_is_the_smallest(n_rows: int, n_tasks: int) -> None:
    smallest = smallest_unit_rows(n_rows, n_tasks=n_tasks)
    assert lay_out(n_rows, unit_rows=smallest, n_tasks=n_tasks).n_units <= MAX_UNITS
    if smallest > 1:
        smaller = Geometry(n_rows=n_rows, unit_rows=smallest - 1, slices_per_shard=1, n_tasks=n_tasks)
        assert smaller.n_units > MAX_UNITS


def test_too_many_units_are_refused_with_the_smallest_size_that_works() -> None:
    with pytest.raises(InputError, match=r"--unit-rows 1 makes 2,000,000 units .* pass --unit-rows 2 or more"):
        lay_out(2_000_000, unit_rows=1, n_tasks=1)


def test_shards_hold_about_a_million_rows_and_at_most_256_slices() -> None:
    assert [slices_per_shard(n) for n in (1, 4096, 10_000, 5_000_000)] == [256, 256, 104, 1]


def test_no_folder_of_shards_outgrows_its_limit() -> None:
    geometry = lay_out(MAX_UNITS, unit_rows=1, n_tasks=1)
    assert geometry.n_shards <= 4096
    assert geometry.n_buckets <= 4096
