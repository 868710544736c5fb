"""Agents and the files of their contexts: fetched once, shared, noticed when they are not what was planned."""

from pathlib import Path
from typing import Any

import pytest
from e2e.running import events_by_agent, finish, start_agent
from planning import make_plan

from fsctx.protocol import names
from fsctx.protocol.manifest import read_manifest
from fsctx.store import PosixStore

WEIGHTS = bytes(3 << 20)
FAKE = ("--engine", "fake", "--no-peers")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path) -> Path:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(40)))
    make_plan(claims, run=tmp_path / "run", models=(str(model),), unit_rows=4)
    return tmp_path / "run"


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for found in events_by_agent(run).values() for event in found if event["event"] == kind]


def test_agents_of_a_node_fetch_once_and_tell_how_fast(run: Path) -> None:
    ended = finish(*(start_agent(run, *FAKE, "--max-units", "2") for _ in range(3)))
    assert [code for code, _ in ended] == [0, 0, 0], ended
    fetched = events(run, "fetched")
    assert sorted(event["source"] for event in fetched) == ["node", "node", "origin"]
    assert sum(event["bytes"] for event in fetched) == len(WEIGHTS) + 2
    assert all(event["mb_per_s"] > 0 for event in fetched if event["source"] == "origin")
    assert {event["bytes"] for event in events(run, "loaded")} == {len(WEIGHTS) + 2}


@pytest.mark.parametrize("mode", ["full", "partial", "agnostic"])
def test_a_model_that_changed_after_the_plan_is_refused_in_every_mode(run: Path, model: Path, mode: str) -> None:
    (model / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"1")
    ((code, said),) = finish(start_agent(run, *FAKE, "--context", mode))
    assert code == 4
    assert f"{model}/model.safetensors changed since it was recorded: restore it or plan again" in said
    assert "Traceback" not in said


def test_a_damaged_record_of_a_context_is_said_and_nothing_is_fetched(run: Path, tmp_path: Path) -> None:
    digest = read_manifest(PosixStore(run)).tasks[0].context
    record = run / names.context(digest)
    record.write_bytes(record.read_bytes().replace(b'"model.safetensors"', b'"../../../etc/passwd"'))
    ((code, said),) = finish(start_agent(run, *FAKE))
    assert code == 4
    assert "does not say what its digest was made of" in said
    assert not (tmp_path / "cache").exists()


def test_a_quota_smaller_than_the_model_ends_the_agent_with_what_to_do(run: Path) -> None:
    ((code, said),) = finish(start_agent(run, *FAKE, "--cache-quota", "1MB"))
    assert code == 2
    assert "the cache's quota is 0.001 GB: pass a larger --cache-quota" in said
    ((code, said),) = finish(start_agent(run, *FAKE, "--cache-quota", "much"))
    assert code == 2
    assert "write it as 20GB or 20GiB" in said


def test_two_runs_with_the_same_model_share_its_files(run: Path, tmp_path: Path, model: Path) -> None:
    make_plan(tmp_path / "claims.txt", run=tmp_path / "second", models=(str(model),), unit_rows=20)
    for folder in (run, tmp_path / "second"):
        assert finish(start_agent(folder, *FAKE))[0][0] == 0
    assert [event["source"] for event in events(tmp_path / "second", "fetched")] == ["node"]
