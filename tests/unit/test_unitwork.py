from collections.abc import Sequence

import pyarrow as pa

from fsctx.agent.engines.base import Row
from fsctx.agent.unitwork import begin, merge_saved
from fsctx.agent.visit import Visit
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin, Status, Verdict, to_table

LABELS = ("A", "B")
PLACE = Geometry(n_rows=100, unit_rows=10, slices_per_shard=4, n_tasks=1).place(2)
ROWS = [Row(row=row, claim=f"claim {row}") for row in range(20, 30)]


def origin(generation: int = 0) -> Origin:
    return Origin(generation=generation, agent=f"agent-{generation}", host="h", device="d", engine="e")


def verdict(row: int) -> Verdict:
    return Verdict(row=row, verdict="A", scores=(-0.1, -2.5), input_tokens=7)


def saved(rows: Sequence[int], generation: int = 0) -> pa.Table:
    return to_table([verdict(row) for row in rows], LABELS, origin(generation))


def test_a_unit_is_complete_when_every_row_has_its_verdict() -> None:
    work = begin(LeaseId(2, 0), PLACE, ROWS, None)
    for row in work.todo:
        assert not work.is_complete
        work.verdicts.append(verdict(row.row))
    assert work.is_complete
    assert work.table(LABELS, origin()).column("row").to_pylist() == list(range(20, 30))


def test_adopted_rows_are_not_done_again_and_keep_their_provenance() -> None:
    work = begin(LeaseId(2, 1), PLACE, ROWS, saved([22, 20]))
    assert [row.row for row in work.todo] == [21, *range(23, 30)]
    work.verdicts.extend(verdict(row.row) for row in work.todo)
    table = work.table(LABELS, origin(1))
    assert table.column("row").to_pylist() == list(range(20, 30))
    assert table.column("generation").to_pylist() == [0, 1, 0] + [1] * 7


def test_empty_claims_need_no_engine() -> None:
    rows = [Row(row=20, claim=""), Row(row=21, claim=" \n"), *ROWS[2:]]
    work = begin(LeaseId(2, 0), PLACE, rows, None)
    assert [v.row for v in work.verdicts] == [20, 21]
    assert {v.status for v in work.verdicts} == {Status.ERROR}
    assert len(work.todo) == 8


def test_saved_rows_are_merged_each_once_and_only_those_of_the_slice() -> None:
    merged = merge_saved([saved([25, 21], 2), saved([21, 22, 22, 99], 1), saved([])], PLACE)
    assert merged is not None
    by_row = dict(zip(merged.column("row").to_pylist(), merged.column("generation").to_pylist(), strict=True))
    assert by_row == {25: 2, 21: 2, 22: 1}
    assert len(merged) == 3


def test_nothing_saved_is_nothing_adopted() -> None:
    assert merge_saved([], PLACE) is None
    assert merge_saved([saved([5])], PLACE) is None


def test_a_snapshot_does_not_change_while_rows_are_added() -> None:
    work = begin(LeaseId(2, 0), PLACE, ROWS, None)
    work.verdicts.append(verdict(20))
    assert work.has_news
    copy = work.snapshot()
    assert not work.has_news
    work.verdicts.append(verdict(21))
    assert work.has_news
    assert [v.row for v in copy.verdicts] == [20]


def test_a_visit_hands_out_units_as_they_are_completed() -> None:
    places = [Geometry(n_rows=100, unit_rows=2, slices_per_shard=4, n_tasks=1).place(unit) for unit in (0, 1)]
    rows = [Row(row=row, claim="c") for row in range(4)]
    works = [begin(LeaseId(p.unit, 0), p, rows[p.first_row : p.first_row + 2], None) for p in places]
    visit = Visit(task=0, works=works)
    visit.take_in([verdict(3), verdict(0), verdict(2)])
    assert [work.lease_id.unit for work in visit.pop_complete()] == [1]
    visit.take_in([verdict(1)])
    assert [work.lease_id.unit for work in visit.pop_complete()] == [0]
    assert visit.works == []
