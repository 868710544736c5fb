"""Published rows computed again: which are drawn, what counts as disagreement, and that the run is left alone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fabricate import FabricatedRun, add_agent, fabricate, finish_unit
from histories import event, tell

from fsctx.agent.audit import Sample, draw
from fsctx.agent.disagreement import Makers, Replayed, compare
from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.cli import cli
from fsctx.errors import Misconfigured, NotComplete
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.verdicts import SCORE, Status, Verdict
from fsctx.templates.load import parse_template

MAKERS = Makers(model="m", template="t", device="A10", engine="hf", dtype="bfloat16")


def replayed(*before: float, now: tuple[float, ...], row: int = 0, **kind: str) -> Replayed:
    labels = ("a", "b", "c")

    def verdict(scores: tuple[float, ...]) -> Verdict:
        return Verdict(row=row, verdict=labels[scores.index(max(scores))], scores=scores)

    makers = Makers(**{"model": "m", "template": "t", "device": "A10", "engine": "hf", "dtype": "bfloat16", **kind})
    return Replayed(makers=makers, published=verdict(before), now=verdict(now))


def audit(run: FabricatedRun, *arguments: str) -> Result:
    command = ["audit", str(run.root), "--cache", str(run.root.parent / "cache"), *arguments]
    result = CliRunner().invoke(cli, command, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    """Two tasks, whose first three units hold what the fake engine computes; the last claim was an error."""
    made = fabricate(tmp_path / "run", n_rows=20, unit_rows=5, templates=("x", "y"))
    for unit in (0, 1, 4):
        place = made.geometry.place(unit)
        template = parse_template((made.root / f"templates/{'xy'[place.task]}.toml").read_text(), where="t")
        bound = FakeEngine().load(tmp_path).bind(BoundTask(template=template, method="score"))
        rows = [Row(row=row, claim=f"Claim {row}.") for row in range(place.first_row, place.first_row + place.n_rows)]
        changed = {
            verdict.row: {"verdict": verdict.verdict}
            | {SCORE + label: score for label, score in zip(made.labels, verdict.scores or (), strict=True)}
            for verdict in bound.infer(bound.encode(rows))
        }
        if unit == 1:
            changed[9] = {"status": "error", "verdict": None, "error": "a bad day"}
        finish_unit(made, unit, changed=changed, agent="agent-1")
    add_agent(made, "agent-1")
    loaded = event(1.0, "loaded", context=made.manifest.tasks[0].context, dtype="bfloat16")
    tell(made, "agent-1", [loaded])
    return made


def test_every_published_row_may_be_drawn_and_none_twice() -> None:
    shape = Geometry(n_rows=23, unit_rows=5, slices_per_shard=8, n_tasks=2)
    everything, n_all = draw(shape, [0, 4, 7], Sample(share=1.0))
    assert everything == {0: [0, 1, 2, 3, 4], 4: [0, 1, 2], 7: [0, 1, 2, 3, 4]}
    assert n_all == 13
    drawn = [draw(shape, [0, 4, 7], Sample(n_rows=2, seed=seed))[0] for seed in range(60)]
    assert all(sum(map(len, found.values())) == 2 for found in drawn)
    assert {(unit, row) for found in drawn for unit, rows in found.items() for row in rows} >= {(4, 2), (7, 4), (0, 0)}
    assert draw(shape, [0, 4], Sample(n_rows=2)) == draw(shape, [0, 4], Sample(n_rows=2))
    assert draw(shape, [], Sample(share=0.01)) == ({}, 0)
    assert sum(map(len, draw(shape, [0, 4], Sample(share=0.01))[0].values())) == 1, "a share is rounded up"


def test_a_flip_within_the_tolerance_is_a_near_tie_and_one_beyond_is_not() -> None:
    rows = [
        replayed(-0.1, -2.0, -3.0, now=(-0.2, -2.0, -3.0), row=1),
        replayed(-1.0, -1.1, -3.0, now=(-1.1, -1.0, -3.0), row=2),
        replayed(-0.1, -2.0, -3.0, now=(-2.0, -0.1, -3.0), row=3),
        replayed(-0.1, -2.0, -3.0, now=(-0.1, -3.0, -3.0), row=4),
    ]
    (found,) = compare(rows, tolerance=0.25)
    assert (found.rows, found.flips, found.near_ties, found.beyond) == (4, 2, 1, 2)
    assert found.largest == pytest.approx(1.9)
    assert found.worst_rows == (3, 4)


def test_makers_are_told_apart_by_device_engine_and_dtype() -> None:
    same = {"now": (-0.1, -2.0, -3.0)}
    rows = [
        replayed(-0.1, -2.0, -3.0, **same, **kind)  # type: ignore[arg-type]
        for kind in ({}, {"device": "cpu"}, {"engine": "hf 5"}, {"dtype": "float32"}, {})
    ]
    assert [found.rows for found in compare(rows, tolerance=0.25)] == [2, 1, 1, 1]


def test_generated_verdicts_agree_where_they_are_the_same_and_an_infinite_score_is_no_distance() -> None:
    before, after = Verdict(row=0, verdict="a", text="a"), Verdict(row=0, verdict="b", text="b")
    assert Replayed(makers=MAKERS, published=before, now=before).agrees(0.0)
    flipped = Replayed(makers=MAKERS, published=before, now=after)
    assert not flipped.agrees(10.0)
    assert flipped.distance is None
    endless = replayed(-0.1, float("-inf"), -3.0, now=(-0.1, float("-inf"), -3.0))
    assert endless.distance == 0.0


def test_another_status_is_never_agreement() -> None:
    before = Verdict(row=0, verdict="a", scores=(0.0,))
    now = Verdict(row=0, status=Status.TOO_LONG, error="too long")
    assert not Replayed(makers=MAKERS, published=before, now=now).agrees(1e9)


def test_an_honest_run_passes_and_is_left_as_it_was(run: FabricatedRun) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(run.root.rglob("*")) if path.is_file()}

    before = content()
    result = audit(run, "--replay", "100%", "--json")
    assert result.return_value == 0
    document = json.loads(result.output)
    assert (document["published"], document["rows"], document["skipped"], document["beyond"]) == (15, 14, 1, 0)
    found = document["disagreements"]
    assert [(group["makers"]["template"], group["rows"]) for group in found] == [("x", 9), ("y", 5)]
    assert {group["makers"]["device"] for group in found} == {"NVIDIA A10"}
    assert {group["makers"]["dtype"] for group in found} == {"bfloat16"}
    assert max(group["largest"] for group in found) < 1e-5
    assert content() == before
    assert "All agree within the tolerance." in audit(run).output


def test_rows_that_this_device_does_not_compute_end_in_exit_code_4(run: FabricatedRun) -> None:
    finish_unit(run, 2)  # fabricated verdicts: not the engine's
    result = audit(run, "--replay", "100%")
    assert result.return_value == 4
    assert "rows differ by more than 0.25 nat, the worst of them: 1" in result.output
    assert audit(run, "--replay", "100%", "--tolerance", "1000").return_value == 0


def test_a_context_that_the_engine_keeps_off_is_refused_before_any_row_is_computed(
    run: FabricatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_off(*_: object) -> None:
        raise Misconfigured("it is a classifier")

    monkeypatch.setattr("fsctx.agent.bystander.check_context", keep_off)
    monkeypatch.setattr(FakeEngine, "load", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(Misconfigured, match="it is a classifier"):
        audit(run, "--replay", "100%")


def test_a_run_without_verdicts_is_not_complete(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    with pytest.raises(NotComplete, match="no published verdict"):
        audit(run)


@pytest.mark.parametrize("given", ["0", "0%", "101%", "-5", "x", "1%%", "1.5", "nan%"])
def test_a_replay_that_is_neither_a_share_nor_rows_is_refused(run: FabricatedRun, given: str) -> None:
    result = CliRunner().invoke(cli, ["audit", str(run.root), "--replay", given])
    assert result.exit_code == 2
    assert "is neither a share such as 1% nor a number of rows such as 500" in result.output or given == "-5"
