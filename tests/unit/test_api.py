"""The library: its public surface, and that it does what the commands do."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, fabricate, fail_unit, finish_all, finish_unit

import fsctx
from fsctx.cli.collect import collect as collect_command
from fsctx.cli.plan import plan as plan_command
from fsctx.coordinator.submit.fake import FakeBatch
from fsctx.protocol import names

SURFACE = {
    "plan": [
        "inputs",
        *("run=", "model=", "base=", "template=", "app=", "method=", "id_column=", "claim_column=", "label_column="),
        *(
            "gold=",
            "unit_rows=",
            "ttl_s=",
            "sweep=",
            "budget=",
            "has_header=",
            "is_quoted=",
            "only_used_columns=",
            "progress=",
        ),
    ],
    "Run": ["path", "planned="],
    "Run.status": ["self"],
    "Run.wait": ["self", "timeout_s=", "every_s="],
    "Run.submit": [
        *("self", "batch", "n"),
        *("settings=", "agent_options=", "environment=", "template_dir=", "force="),
    ],
    "Run.stop": ["self", "drain="],
    "Run.retry": ["self", "units"],
    "Run.collect": ["self", "output", "form=", "partial=", "keep_columns="],
    "Run.statistics": ["self", "partial="],
    "Run.report": ["self", "output"],
    "Run.audit": [
        *("self", "share=", "rows=", "seed=", "tolerance="),
        *("engine=", "device=", "dtype=", "cache="),
    ],
}
"""What programs of others may rest on: a change here is a change to them. `=`: by name only."""


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "a run", n_rows=40, unit_rows=10)


def test_the_public_surface_is_pinned() -> None:
    assert fsctx.__all__ == [
        *("Damaged", "FsctxError", "InputError", "NoSpace", "NotComplete", "Run", "StoreError", "__version__", "plan")
    ]
    found = {"plan": fsctx.plan, "Run": fsctx.Run}
    found |= {f"Run.{name}": method for name, method in vars(fsctx.Run).items() if not name.startswith("_")}
    assert {name: signature(call) for name, call in found.items()} == SURFACE
    assert set(fsctx.__all__) <= set(dir(fsctx))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fsctx.nothing  # noqa: B018


def signature(call: object) -> list[str]:
    parameters = inspect.signature(call).parameters.values()  # type: ignore[arg-type]
    return [one.name + ("=" if one.kind is one.KEYWORD_ONLY else "") for one in parameters]


def test_every_public_thing_is_documented_and_typed() -> None:
    for name in ("plan", "Run"):
        assert getattr(fsctx, name).__doc__
    for name, method in vars(fsctx.Run).items():
        if not name.startswith("_"):
            assert method.__doc__, name
            assert method.__annotations__["return"], name
    assert (Path(fsctx.__file__).parent / "py.typed").exists()


def test_importing_it_and_its_names_loads_nothing_heavy() -> None:
    code = (
        "import sys, fsctx; from fsctx import Run, plan\n"
        "print([n for n in ('torch', 'pyarrow', 'numpy', 'duckdb', 'click', 'rich', 'jinja2') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_is_printed_in_a_session_where_duckdb_would_show_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "claims.jsonl").write_text('{"claim": "a"}\n')
    run = fabricate(tmp_path / "done", n_rows=4, unit_rows=4)
    finish_all(run)
    code = (
        "import duckdb, fsctx\n"
        "connect, seen = duckdb.connect, []\n"
        "class Watched:\n"
        "    def __init__(self, own): self.own = own\n"
        "    def __getattr__(self, name): return getattr(self.own, name)\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *_): self.close()\n"
        "    def close(self):\n"
        "        seen.extend(self.own.sql(\"SELECT current_setting('enable_progress_bar')\").fetchall())\n"
        "        self.own.close()\n"
        "duckdb.connect = lambda *a, **k: Watched(connect(*a, **k))\n"
        f"fsctx.plan({str(tmp_path / 'claims.jsonl')!r}, run={str(tmp_path / 'run')!r}, model='fake')\n"
        f"fsctx.Run({str(run.root)!r}).collect({str(tmp_path / 'out.jsonl')!r})\n"
        "print(set(seen), len(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("{(False,)} ")


def test_a_plan_is_the_command_s(tmp_path: Path) -> None:
    source = tmp_path / "claims.csv"
    source.write_text("statement,truth\none,yes\ntwo,no\n")
    run = fsctx.plan(source, run=tmp_path / "run", model="fake", gold={"yes": "SUPPORTED", "no": "REFUTED"})
    assert run.planned is not None
    assert (run.planned.rows, run.planned.is_new) == (2, True)
    words = [str(source), "--run", str(tmp_path / "run"), "--model", "fake", "--map", "yes=SUPPORTED"]
    same = CliRunner().invoke(plan_command, [*words, "--map", "no=REFUTED", "--json"])
    assert json.loads(same.output)["is_new"] is False
    assert fsctx.Run(tmp_path / "run").name == run.name
    assert repr(run) == f"fsctx.Run('{tmp_path}/run')"


def test_several_inputs_models_and_templates_make_a_sweep(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("a claim\nanother claim\n")
    sources = [tmp_path / "a.txt", str(tmp_path / "b.txt")]
    run = fsctx.plan(sources, run=tmp_path / "run", model=["fake"], template=["fever", "true-false"])
    assert run.planned is not None
    assert (run.planned.rows, run.planned.tasks) == (4, 2)


def test_collect_gives_the_rows_of_the_file_that_the_command_writes(run: FabricatedRun, tmp_path: Path) -> None:
    finish_all(run)
    table = fsctx.Run(run.root).collect(tmp_path / "own.parquet")
    CliRunner().invoke(collect_command, [str(run.root), "-o", str(tmp_path / "command.parquet")])
    of_command = pq.read_table(tmp_path / "command.parquet")
    assert table.equals(of_command, check_metadata=True)
    assert pq.read_table(tmp_path / "own.parquet").equals(table, check_metadata=True)
    assert table.to_pandas()["verdict"].tolist() == table["verdict"].to_pylist()
    assert isinstance(table.to_pandas(), pd.DataFrame)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    assert frame.height == 40


def test_what_is_missing_raises_and_partial_takes_what_is_there(run: FabricatedRun, tmp_path: Path) -> None:
    own = fsctx.Run(run.root)
    assert own.collect(partial=True).num_rows == 0
    assert own.collect(partial=True).column_names[:3] == ["id", "claim", "label"]
    finish_unit(run, 1)
    with pytest.raises(fsctx.NotComplete, match=r"30 of 40 verdicts are missing"):
        own.collect(tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    assert own.collect(partial=True).num_rows == 10
    assert own.statistics(partial=True).missing == 30


def test_statistics_are_what_the_command_prints(run: FabricatedRun) -> None:
    finish_all(run)
    printed = json.loads(CliRunner().invoke(collect_command, [str(run.root), "--json"]).output)
    summary = fsctx.Run(run.root).statistics()
    assert (summary.rows, summary.tasks[0].accuracy) == (printed["rows"], printed["tasks"][0]["accuracy"])


def test_status_retry_and_stop_see_the_run(run: FabricatedRun) -> None:
    own = fsctx.Run(run.root)
    fail_unit(run, 2)
    assert own.status().units.failed == 1
    with pytest.raises(fsctx.InputError, match="unit 99"):
        own.retry([99])
    assert own.retry().units == (2,)
    assert own.stop(drain=True).number == 1
    assert own.stop().number == 2
    assert [names.parse_order(name) for name in sorted(run.store.list(names.CONTROL))] == [("drain", 1), ("stop", 2)]


def test_wait_ends_with_the_run_or_with_the_time(run: FabricatedRun) -> None:
    own = fsctx.Run(run.root)
    assert own.wait(timeout_s=0).units.free == 4
    finish_all(run)
    assert own.wait().units.done == 4


def test_a_report_is_written_of_what_is_there(run: FabricatedRun, tmp_path: Path) -> None:
    assert fsctx.Run(run.root).report(tmp_path / "page.html").missing == 40
    assert "<html" in (tmp_path / "page.html").read_text()
    with pytest.raises(fsctx.InputError):
        fsctx.Run(run.root).report(tmp_path / "page.txt")


def test_pilots_are_started_and_recorded(run: FabricatedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeBatch()
    monkeypatch.setattr("fsctx.coordinator.submit.submit.batch_system", lambda *_: system)
    done = fsctx.Run(run.root).submit("fake", 3, agent_options=["--device", "cpu"])
    assert (done.wanted, sum(pilot.count for pilot in done.pilots)) == (3, 3)
    assert run.store.list(names.SUBMISSIONS) == [f"{done.name}.json"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": "pbs", "n": 1}, "--batch pbs is unknown"),
        ({"batch": "local", "n": 0}, "-n 0"),
        ({"batch": "local", "n": 1, "agent_options": ["--device"]}, "agent_options: Option '--device' requires"),
        ({"batch": "local", "n": 1, "settings": {"no": "x"}}, "no"),
    ],
)
def test_pilots_that_cannot_be_are_refused_and_nothing_is_recorded(
    run: FabricatedRun, options: dict[str, object], said: str
) -> None:
    with pytest.raises(fsctx.InputError, match=said):
        fsctx.Run(run.root).submit(**options)  # type: ignore[arg-type]
    assert run.store.list(names.SUBMISSIONS) == []


def test_a_folder_that_is_no_run_is_said_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(fsctx.InputError, match="is not a run"):
        fsctx.Run(tmp_path)


def test_a_sweep_that_stops_early_is_planned_as_by_the_command(tmp_path: Path) -> None:
    rows = [{"claim": f"claim {row}", "label": "true"} for row in range(1_000)]
    (tmp_path / "claims.json").write_text(json.dumps(rows))
    options = {"run": tmp_path / "run", "model": "fake", "template": ["fever", "true-false"]}
    run = fsctx.plan(tmp_path / "claims.json", **options, sweep="halving", budget=1_900)  # type: ignore[arg-type]
    assert run.planned is not None
    assert len(run.planned.rungs) > 1
    assert run.status().sweep is not None
    with pytest.raises(fsctx.InputError, match="sweep 'thirds' is not known: pass 'halving', or None"):
        fsctx.plan(tmp_path / "claims.json", **options, sweep="thirds")  # type: ignore[arg-type]
    with pytest.raises(fsctx.InputError, match="--budget 5 bounds a sweep"):
        fsctx.plan(tmp_path / "claims.json", run=tmp_path / "other", model="fake", budget=5)


def test_an_audit_is_the_commands(run: FabricatedRun, tmp_path: Path) -> None:
    own = fsctx.Run(run.root)
    options = {"engine": "fake", "cache": tmp_path / "cache"}
    with pytest.raises(fsctx.NotComplete):
        own.audit(**options)  # type: ignore[arg-type]
    finish_all(run)
    found = own.audit(rows=7, **options)  # type: ignore[arg-type]
    assert (found.published, found.rows, found.engine[:4]) == (40, 7, "fake")
    for nothing in ({"share": 0.0}, {"share": 1.5}, {"rows": 0}, {"share": None}):
        with pytest.raises(fsctx.InputError, match="pass a share"):
            own.audit(**nothing, **options)  # type: ignore[arg-type]
