"""Whole runs where results are published by link(2), and under a budget of calls."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from e2e.running import events, finish, start_agent
from fabricate import FabricatedRun, fabricate

from fsctx.coordinator.status import read_status
from fsctx.protocol import codec, names


def planned(folder: Path, *, n_rows: int, unit_rows: int, **changes: object) -> FabricatedRun:
    run = fabricate(folder, n_rows=n_rows, unit_rows=unit_rows)
    manifest = dataclasses.replace(run.manifest, **changes)  # type: ignore[arg-type]
    run.store.replace(names.MANIFEST, codec.encode_pretty(manifest))
    return dataclasses.replace(run, manifest=manifest)


def test_a_run_that_publishes_by_link_ends_with_every_row_once(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", n_rows=40, unit_rows=4, publish="link")
    said = finish(*(start_agent(run.root, "--engine", "fake:load_s=0") for _ in range(2)))
    assert [code for code, _ in said] == [0, 0], said
    assert not [path for path in run.root.rglob("*") if path.is_symlink()]
    output = tmp_path / "out.parquet"
    command = [sys.executable, "-m", "fsctx", "collect", str(run.root), "-o", str(output), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows"], told["missing"], told["duplicates"]) == (40, 0, 0)
    assert pq.read_metadata(output).num_rows == 40


def test_an_agent_counts_its_calls_and_says_so(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", n_rows=80, unit_rows=2)
    assert finish(start_agent(run.root, "--engine", "fake:load_s=0"))[0][0] == 0
    by_kind = events(run, "left")[0]["fs_calls"]
    total = sum(by_kind.values())
    assert by_kind["create"] >= 80
    assert by_kind["symlink"] == 40
    ledger = read_status(run.store).ledger
    assert total - 3 <= ledger.fs_calls <= total + 3
    assert ledger.fs_calls / ledger.units_done < 12


def test_an_agent_keeps_its_budget_of_calls(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", n_rows=40, unit_rows=2)
    assert finish(start_agent(run.root, "--engine", "fake:load_s=0", "--fs-ops-per-s", "40"))[0][0] == 0
    left = events(run, "left")[0]
    assert left["at_s"] >= sum(left["fs_calls"].values()) / 40 - 2.0
