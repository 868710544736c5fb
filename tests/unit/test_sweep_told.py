"""What plan, status, collect and the page say of a sweep that stops early."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from html_tables import Tables
from planning import make_plan, manifest_of
from rich.console import Console
from sweeping import MINE, Worker, look_at_all, plan_sweep, referee

from fsctx.agent.runfiles import RunFiles
from fsctx.cli import cli
from fsctx.coordinator import status_text
from fsctx.coordinator.live.screen import Picture, draw
from fsctx.coordinator.progress import AgentView
from fsctx.coordinator.status import read_status
from fsctx.errors import FsctxError, InputError, NotComplete
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState
from fsctx.protocol.decisions import read_extent

ACCURACIES = {"good": 0.9, "fair": 0.88, "poor": 0.3}


def call(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def plan_files(folder: Path, **options: Any) -> Path:
    claims = folder / "claims.csv"
    claims.write_text("claim,label\n" + "".join(f"Claim {i}.,SUPPORTS\n" for i in range(400)))
    make_plan(claims, run=folder / "run", templates=("fever", "fever-raw"), **{"sweep": "halving", **options})
    return folder / "run"


@pytest.fixture
def begun(tmp_path: Path) -> RunFiles:
    """A sweep of 400 claims and three templates after its first decision, which dropped one of them."""
    run = plan_sweep(tmp_path / "sweep", ACCURACIES, n_rows=400, unit_rows=10)
    Worker(run=run, accuracies=ACCURACIES).finish(read_extent(run.store, run.manifest).open_units())
    judge = referee(run)
    look_at_all(judge.search, run)
    judge.turn(MINE, 0.0)
    return run


@pytest.fixture
def done(begun: RunFiles) -> RunFiles:
    Worker(run=begun, accuracies=ACCURACIES).sweep()
    return begun


def test_a_plan_tells_its_rungs_and_keeps_them_in_the_manifest(tmp_path: Path) -> None:
    run = plan_files(tmp_path)
    manifest = manifest_of(run)
    assert manifest.sweep is not None
    assert manifest.sweep.ends == (13, 25)
    assert (run / names.SWEEP).is_dir()
    assert json.loads((run / names.MANIFEST).read_text())["schema"] == 2, "versions without sweeps keep away"
    again = [tmp_path / "claims.csv", "--run", run, "--model", "fake", "--template", "fever", "--template", "fever-raw"]
    assert "  sweep     on 208, 400 claims" in call("plan", *again, "--sweep", "halving")
    with pytest.raises(InputError, match="--sweep and --budget differ"):
        call("plan", *again)


def test_a_plan_without_a_sweep_is_as_it_was(tmp_path: Path) -> None:
    run = plan_files(tmp_path, sweep=None)
    assert manifest_of(run).sweep is None
    assert manifest_of(run).geometry.stride == 1
    assert json.loads((run / names.MANIFEST).read_text())["schema"] == 1
    assert not (run / names.SWEEP).exists()


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"topic": "SUPPORTS"}, {}, r"needs gold labels .* --label-column"),
        ({"label": "odd"}, {}, r"labels that template fever knows, and it knows none of odd: pass --map GOLD=LABEL"),
        ({"label": "SUPPORTS"}, {"templates": ("fever",)}, r"needs several tasks .* --template or --model"),
        ({"label": "SUPPORTS"}, {"sweep": None, "budget": 500}, r"--budget 500 bounds a sweep: pass --sweep halving"),
        ({"label": "SUPPORTS"}, {"budget": 499}, r"--budget 499: .* takes 500 inferences .*: pass at least 500"),
        (
            {"label": "SUPPORTS"},
            {"unit_rows": 100},
            r"400 claims with a gold label .* smaller --unit-rows",
        ),
    ],
)
def test_a_sweep_that_could_decide_nothing_is_refused_and_nothing_is_written(
    tmp_path: Path, row: dict[str, str], options: dict[str, Any], said: str
) -> None:
    claims = tmp_path / "claims.jsonl"
    claims.write_text("\n".join(json.dumps({"claim": f"Claim {i}.", **row}) for i in range(400)))
    given: dict[str, Any] = {"sweep": "halving", "templates": ("fever", "fever-raw"), "unit_rows": 10, **options}
    with pytest.raises(InputError, match=said):
        make_plan(claims, run=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_claims_without_a_label_that_all_templates_know_do_not_make_a_sample_larger(tmp_path: Path) -> None:
    claims = tmp_path / "claims.csv"
    labels = ("SUPPORTS", "", "odd", "")
    claims.write_text("claim,label\n" + "".join(f"Claim {i}.,{labels[i % 4]}\n" for i in range(1600)))
    given: dict[str, Any] = {"sweep": "halving", "templates": ("fever", "true-false"), "unit_rows": 10}
    make_plan(claims, run=tmp_path / "run", **given)
    manifest = manifest_of(tmp_path / "run")
    assert manifest.sweep is not None
    assert [manifest.geometry.rows_before(end) for end in manifest.sweep.ends] == [400, 800, 1600]


def test_status_shows_the_open_rung_who_goes_on_and_who_was_dropped(begun: RunFiles) -> None:
    document = json.loads(call("status", begun.store.root, "--json"))
    assert document["sweep"]["rung"] == 2
    assert document["sweep"]["rungs"] == [100, 200, 400]
    assert document["sweep"]["survivors"] == [0, 1]
    (dropped,) = document["sweep"]["dropped"]
    assert (dropped["template"], dropped["claims"], dropped["reason"]) == ("poor", 100, "worse")
    assert document["rows"] == {"total": 1200, "done": 300, "dropped": 300}
    assert document["units"]["dropped"] == 30
    assert sum(document["units"][kind] for kind in ("done", "leased", "free", "failed", "dropped")) == 120
    text = call("status", begun.store.root)
    assert "rows   300 of 900 done (33.3 %), 300 dropped" in text
    assert "units  30 of 90 done, 0 leased, 60 free, 0 failed, 30 dropped" in text
    assert "sweep  rung 2 of 3 (200 claims), 2 of 3 tasks go on" in text
    assert "dropped after 100 claims: fake, poor (" in text


def test_what_is_left_may_be_less_and_is_no_more_than_the_budget(begun: RunFiles) -> None:
    worker = AgentView(agent="a", state=AgentState.RUNNING, rows_per_s=2.0)
    seen = replace(read_status(begun.store), agents=(worker,))
    assert seen.rows_left == 600
    assert "at most 5 min left" in status_text.eta(seen)
    assert seen.sweep is not None
    bounded = replace(seen, sweep=replace(seen.sweep, budget=700))
    assert bounded.rows_left == 400


def test_the_watchers_screen_shows_the_rung_and_counts_without_what_was_dropped(begun: RunFiles) -> None:
    picture = Picture(status=read_status(begun.store), left=None, rows_per_s=None)
    out = io.StringIO()
    Console(file=out, width=100).print(draw(picture, width=100, height=30))
    shown = out.getvalue()
    assert "30/90" in shown
    assert "300 of 900 rows" in shown
    assert "rung 2 of 3 (200 claims), 2 of 3 tasks go on" in shown


def test_a_sweep_is_not_complete_before_its_last_rung(begun: RunFiles, tmp_path: Path) -> None:
    with pytest.raises(NotComplete, match="600 of 900 verdicts are missing"):
        call("collect", begun.store.root, "-o", tmp_path / "out.parquet")


def test_collect_is_complete_without_what_was_dropped_and_names_it(done: RunFiles, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    document = json.loads(call("collect", done.store.root, "-o", out, "--json"))
    extent = read_extent(done.store, done.manifest)
    assert document["missing"] == document["duplicates"] == 0
    assert document["dropped"] == extent.dropped_rows > 0
    assert document["rows"] + document["dropped"] == 1200
    table = pq.read_table(out)
    assert table.num_rows == document["rows"]
    rows = {(row["id"], row["template"]) for row in table.select(["id", "template"]).to_pylist()}
    assert len(rows) == table.num_rows
    poor = sorted(row for row, template in rows if template == "poor")
    assert len(poor) == 100
    assert poor != list(range(100)), "a sample, not the first ones"
    units = dict(zip(table["unit"].to_pylist(), table["id"].to_pylist(), strict=True))
    assert all(done.manifest.geometry.place(unit).slice == row // 10 for unit, row in units.items())
    text = call("collect", done.store.root)
    assert "dropped after 100 claims: fake, poor" in text
    assert json.loads(call("status", done.store.root, "--json"))["state"] == "done"


def test_a_dropped_task_never_comes_first_whatever_its_sample_says(done: RunFiles) -> None:
    document = json.loads(call("collect", done.store.root, "--json"))
    survivors = document["sweep"]["survivors"]
    assert set(document["ranking"][: len(survivors)]) == set(survivors)


def test_the_page_shows_what_was_dropped_when_and_why(done: RunFiles, tmp_path: Path) -> None:
    call("report", done.store.root, "-o", tmp_path / "page.html")
    dropped = Tables((tmp_path / "page.html").read_text(encoding="utf-8")).bodies["dropped"]
    assert dropped[0][0] == "fakepoor"
    assert dropped[0][1] == "100"
    assert dropped[0][6:] == ["clearly worse", "300", "now"]


def test_an_agents_error_about_a_sweep_is_one_line(begun: RunFiles) -> None:
    (begun.store.root / names.decision(1)).symlink_to("elsewhere")
    for command in ("status", "collect"):
        with pytest.raises(FsctxError, match="sweep/001 points to 'elsewhere', which is no decision: restore it"):
            call(command, begun.store.root)
