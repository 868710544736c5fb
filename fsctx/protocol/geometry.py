"""Where a unit's rows are, by arithmetic alone: no file maps units to rows.

Units are numbered task by task: unit = task * n_slices + position. A slice is a row group of a shard; its position is
its number, or, where a `stride` is set, the slice is position * stride modulo n_slices: then the units before any
position are a sample that is spread evenly over the claims.
"""

from dataclasses import dataclass

UNITS_PER_BUCKET = 256
MAX_UNCOMPACTED_BUCKETS = 16
"""Runs of more buckets are compacted as they go; smaller ones keep a file per unit, which is easier to look into."""

MAX_BUCKETS = 4096
"""No directory of a run grows beyond this many names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where unit `unit` lies: row group `row_group` of shard `shard`, rows `first_row` and on."""

    unit: int
    task: int
    slice: int
    shard: int
    row_group: int
    first_row: int
    n_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The numbers that fix every unit's place."""

    n_rows: int
    unit_rows: int
    slices_per_shard: int
    n_tasks: int
    stride: int = 1
    """Has no divisor in common with the number of slices, so each slice has one position."""

    @property
    def n_slices(self) -> int:
        """Number of row groups over all shards."""
        return -(-self.n_rows // self.unit_rows)

    @property
    def n_shards(self) -> int:
        """Number of Parquet files of claims."""
        return -(-self.n_slices // self.slices_per_shard)

    @property
    def n_units(self) -> int:
        """Number of units: every task applied to every slice."""
        return self.n_slices * self.n_tasks

    @property
    def n_buckets(self) -> int:
        """Number of buckets; the last one may be short."""
        return -(-self.n_units // UNITS_PER_BUCKET)

    def units_of(self, bucket: int) -> range:
        """Return the units of a bucket."""
        first = bucket * UNITS_PER_BUCKET
        return range(first, min(first + UNITS_PER_BUCKET, self.n_units))

    def rows_of_slice(self, number: int) -> int:
        """Return how many claims a slice holds."""
        return min(self.unit_rows, self.n_rows - number * self.unit_rows)

    def task_of(self, unit: int) -> int:
        """Return the task of a unit."""
        return unit // self.n_slices

    def unit_of(self, *, task: int, slice_number: int) -> int:
        """Return the unit that applies a task to a slice."""
        return task * self.n_slices + self.position_of(slice_number)

    def position_of(self, slice_number: int) -> int:
        """Return where a slice stands in the order of each task's units."""
        if self.stride == 1:
            return slice_number
        return slice_number * pow(self.stride, -1, self.n_slices) % self.n_slices

    def rows_before(self, position: int) -> int:
        """Return how many claims the slices before a position hold."""
        last = self.n_slices - 1  # the one slice that may be short
        n_missing = self.unit_rows - self.rows_of_slice(last) if self.position_of(last) < position else 0
        return position * self.unit_rows - n_missing

    def place(self, unit: int) -> Place:
        """Return where a unit lies."""
        task, position = divmod(unit, self.n_slices)
        slice_number = position * self.stride % self.n_slices
        shard, row_group = divmod(slice_number, self.slices_per_shard)
        return Place(
            unit=unit,
            task=task,
            slice=slice_number,
            shard=shard,
            row_group=row_group,
            first_row=slice_number * self.unit_rows,
            n_rows=self.rows_of_slice(slice_number),
        )


def bucket_of(unit: int) -> int:
    """Return the bucket of a unit."""
    return unit // UNITS_PER_BUCKET
