from hypothesis import given
from hypothesis import strategies as st

from fsctx.protocol.geometry import UNITS_PER_BUCKET, Geometry, bucket_of

geometries = st.builds(
    Geometry,
    n_rows=st.integers(1, 5000),
    unit_rows=st.integers(1, 300),
    slices_per_shard=st.integers(1, 300),
    n_tasks=st.integers(1, 5),
)


@given(geometries)
def test_every_row_of_every_task_is_in_exactly_one_unit(shape: Geometry) -> None:
    seen: dict[int, int] = dict.fromkeys(range(shape.n_tasks), 0)
    for unit in range(shape.n_units):
        place = shape.place(unit)
        assert place.first_row == seen[place.task]
        assert place.n_rows >= 1
        assert shape.unit_of(task=place.task, slice_number=place.slice) == unit
        seen[place.task] += place.n_rows
    assert set(seen.values()) == {shape.n_rows}


@given(geometries)
def test_every_unit_is_in_exactly_one_bucket_of_limited_size(shape: Geometry) -> None:
    units = [unit for bucket in range(shape.n_buckets) for unit in shape.units_of(bucket)]
    assert units == list(range(shape.n_units))
    assert all(bucket_of(unit) == unit // UNITS_PER_BUCKET for unit in units)


@given(geometries)
def test_shards_hold_their_slices_and_no_more(shape: Geometry) -> None:
    places = [shape.place(unit) for unit in range(shape.n_slices)]
    assert {place.shard for place in places} == set(range(shape.n_shards))
    assert all(place.row_group < shape.slices_per_shard for place in places)


@given(geometries, st.data())
def test_a_unit_is_found_again_from_its_place(shape: Geometry, data: st.DataObject) -> None:
    unit = data.draw(st.integers(0, shape.n_units - 1))
    place = shape.place(unit)
    assert shape.unit_of(task=place.task, slice_number=place.slice) == unit
    assert shape.task_of(unit) == place.task
    assert place.shard * shape.slices_per_shard + place.row_group == place.slice
    assert place.n_rows == shape.rows_of_slice(place.slice)


@given(geometries)
def test_all_slices_but_the_last_are_full_and_none_is_empty(shape: Geometry) -> None:
    sizes = [shape.rows_of_slice(number) for number in range(shape.n_slices)]
    assert set(sizes[:-1]) <= {shape.unit_rows}
    assert 1 <= sizes[-1] <= shape.unit_rows
