"""What docs/reading.md says of reading a run from its files, executed as it stands there."""

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fabricate import FabricatedRun, fabricate, finish_all, lose_race

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.protocol import compaction, names, verdicts
from fsctx.store.base import TEMPORARY

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FabricatedRun:
    """Two tasks whose units share a bucket; in the second one units are missing."""
    monkeypatch.chdir(tmp_path)
    run = fabricate(tmp_path / "my-run", n_rows=149, unit_rows=1, templates=("fever", "short"))
    finish_all(run, but=[270, 290])
    lose_race(run, 3, generation=4)
    return run


def page() -> dict[str, Any]:
    """Execute the page's code and return what it defines."""
    found: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M):
        exec(compile(block, str(PAGE), "exec"), found)
    return found


def merge(run: FabricatedRun, *, between: Callable[[], object] = lambda: None) -> None:
    """Compact the first bucket and put its folder back, as if the agent had stopped half-way."""
    folder = run.root / names.bucket_folder(names.RESULTS, 0)
    shutil.copytree(folder, run.root / "aside", symlinks=True)
    assert compaction.compact(run.store, run.manifest, [run.labels, run.labels], 0)
    between()
    shutil.copytree(run.root / "aside", folder, symlinks=True)


def expected(run: FabricatedRun) -> Counter[tuple[Any, ...]]:
    tables: list[Any] = []
    collect(run.store, Request(is_partial=True), take=tables.append)
    columns = ["template", "claim", "verdict"]
    return Counter(tuple(row[name] for name in columns) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("is_merged", [False, True])
def test_the_page_reads_each_verdict_once_with_its_task_and_claim(run: FabricatedRun, *, is_merged: bool) -> None:
    wanted = expected(run)
    assert (sum(wanted.values()), max(wanted.values())) == (296, 1)
    if is_merged:
        merge(run)
    found = page()
    rows = found["verdicts"]("my-run").project("template, claim, verdict").fetchall()
    assert Counter(rows) == wanted
    assert found["frame"].height == len(found["table"]) == 296
    assert len(found["files"]) == (1 + 40 if is_merged else 296)


def test_the_page_reads_a_bucket_whose_folder_is_gone(run: FabricatedRun) -> None:
    wanted = expected(run)
    assert compaction.compact(run.store, run.manifest, [run.labels, run.labels], 0)
    assert Counter(page()["verdicts"]("my-run").project("template, claim, verdict").fetchall()) == wanted


def test_the_page_passes_over_a_bucket_that_is_being_removed(run: FabricatedRun) -> None:
    wanted = expected(run)
    merge(run)
    folder = run.root / names.bucket_folder(names.RESULTS, 0)
    folder.rename(f"{folder}{TEMPORARY}0a1b2c3d")  # its agent died before it was empty
    assert Counter(page()["verdicts"]("my-run").project("template, claim, verdict").fetchall()) == wanted


def test_the_page_names_every_column_of_a_result() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    assert {name for name in verdicts.schema(()).names if name not in told} == set()
