"""Where an agent gets a context's files, and what it does when they changed or the node has no room."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contexts import context_of
from fabricate_parts import template_source

from fsctx.agent.engines.fake import FakeEngine, FakeModel, parse_options
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode, Residency
from fsctx.agent.sources import Source, source_of_files
from fsctx.cache import Fetched, NodeCache
from fsctx.errors import Damaged, InputError, Misconfigured, Unfit
from fsctx.protocol.manifest import Context, Task
from fsctx.templates.load import parse_template

ENGINE = FakeEngine(parse_options(""))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    made = context_of(tmp_path / "origin", {"config.json": b"{}", "weights": os.urandom(4500)})
    times = [(tmp_path / "origin" / file.path).stat().st_mtime_ns for file in made.files]
    files = tuple(replace(file, mtime_ns=time) for file, time in zip(made.files, times, strict=True))
    return replace(made, files=files)


def options(root: Path, **given: Any) -> AgentOptions:
    return AgentOptions(cache=root, **given)


def source_of(given: AgentOptions, *, say: Callable[[str], None]) -> Source:
    return source_of_files(given, NodeCache(given.cache, quota_bytes=given.cache_quota_bytes), say=say)


def agnostic(context: Context) -> Fetched:
    source = source_of(options(Path("/nonexistent"), context=ContextMode.AGNOSTIC), say=print)
    return source(context, ENGINE)


def test_a_context_agnostic_agent_uses_the_files_where_they_are(context: Context) -> None:
    fetched = agnostic(context)
    assert (str(fetched.path), fetched.source, fetched.bytes) == (context.origin, "origin", 0)


def test_a_context_agnostic_agent_refuses_a_model_with_an_adapter_which_is_no_one_folder(context: Context) -> None:
    with pytest.raises(Misconfigured, match="/adapters/a, which only a node's cache puts together: use --context full"):
        agnostic(replace(context, kind="lora", adapter="/adapters/a"))


@pytest.mark.parametrize("content", [bytes(4500), b"short", bytes(4501)])
def test_a_context_agnostic_agent_notices_a_changed_file(context: Context, content: bytes) -> None:
    (Path(context.origin) / "weights").write_bytes(content)
    with pytest.raises(Damaged, match="weights changed since it was recorded: restore it or plan again"):
        agnostic(context)


def test_it_notices_a_change_between_two_units(context: Context) -> None:
    source = source_of(options(Path("/nonexistent"), context=ContextMode.AGNOSTIC), say=print)
    source(context, ENGINE)
    (Path(context.origin) / "weights").write_bytes(bytes(4500))
    with pytest.raises(Damaged, match="weights changed"):
        source(context, ENGINE)


@pytest.mark.parametrize("mtime_ns", [0, 10**18])
def test_a_file_that_only_its_time_tells_from_the_planned_one_is_read_and_found_the_same(
    context: Context, mtime_ns: int
) -> None:
    if mtime_ns:
        os.utime(Path(context.origin) / "weights", ns=(mtime_ns, mtime_ns))
    else:  # a record that knows no times
        context = replace(context, files=tuple(replace(file, mtime_ns=0) for file in context.files))
    assert agnostic(context).source == "origin"


def test_a_vanished_file_is_damage_and_a_vanished_folder_this_nodes_fault(context: Context) -> None:
    (Path(context.origin) / "config.json").unlink()
    with pytest.raises(Damaged, match=r"config\.json is gone"):
        agnostic(context)
    shutil.rmtree(context.origin)
    with pytest.raises(Unfit, match="mounted"):
        agnostic(context)


def test_with_a_full_disk_the_agent_goes_on_from_the_origin_and_says_why(small_disk: Path, tmp_path: Path) -> None:
    big = context_of(tmp_path / "origin", {"weights": bytes(9 << 20)})
    said: list[str] = []
    source = source_of(options(small_disk / "cache"), say=said.append)
    for fetched in (source(big, ENGINE), source(big, ENGINE)):
        assert (str(fetched.path), fetched.source) == (big.origin, "origin")
        assert "GB free" in fetched.note
        assert said == [fetched.note]


def test_a_model_with_an_adapter_for_which_a_full_disk_has_no_room_is_for_another_node(
    small_disk: Path, tmp_path: Path
) -> None:
    big = context_of(tmp_path / "origin", {"weights": bytes(9 << 20)})
    with pytest.raises(Unfit, match="model and its adapter find no room on this node"):
        source_of(options(small_disk / "cache"), say=print)(replace(big, kind="lora", adapter="/adapters/a"), ENGINE)


def test_a_disk_that_is_full_to_the_last_byte_stops_no_agent(small_disk: Path, context: Context) -> None:
    free = os.statvfs(small_disk)
    with open(small_disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize)
    assert "is full" in source_of(options(small_disk / "cache"), say=print)(context, ENGINE).note


def test_a_quota_that_can_never_do_is_an_error_and_not_a_slow_agent(tmp_path: Path, context: Context) -> None:
    with pytest.raises(InputError, match="--cache-quota"):
        source_of(options(tmp_path / "cache", cache_quota_bytes=100), say=print)(context, ENGINE)


def test_an_agent_that_turns_to_another_context_lets_the_first_one_go(tmp_path: Path, context: Context) -> None:
    second = replace(context_of(tmp_path / "second", {"weights": b"2" * 3000}), digest="d2")
    source = source_of(options(tmp_path / "cache", cache_quota_bytes=5000), say=print)
    assert source(context, ENGINE).note == source(second, ENGINE).note == ""
    assert [entry.digest for entry in NodeCache(tmp_path / "cache").entries()] == ["d2"]


def test_a_cache_on_a_shared_filesystem_is_warned_of(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("fsctx.agent.sources.network_of", lambda _: "nfs4")
    assert source_of(options(tmp_path / "cache"), say=said.append)(context, ENGINE).source == "origin"
    (line,) = said
    assert "nfs4" in line
    assert "--cache DIR" in line


def test_rotten_weights_that_cannot_be_loaded_are_fetched_again_once(tmp_path: Path, context: Context) -> None:
    cache, loads = NodeCache(tmp_path / "cache"), []
    source = source_of_files(options(cache.root), cache, say=print)
    weights = source(context, ENGINE).path / "weights"
    rot(weights)

    class Picky(FakeEngine):
        def load(self, files: Path) -> FakeModel:
            loads.append((files / "weights").read_bytes())
            if loads[-1] != (Path(context.origin) / "weights").read_bytes():
                raise Misconfigured("cannot be loaded as a model")
            return super().load(files)

    engine = Picky(parse_options(""))
    resident = Residency(
        tasks=[Task(context=context.digest, model="m", template="t", method="score")],
        contexts={context.digest: context},
        templates={"t": parse_template(template_source("t", ["yes", "no"]), where="t")},
        mode=ContextMode.FULL,
        engine_for=lambda _: engine,
        fetch=source,
        mend=cache.mend,
        clock=lambda: 0.0,
    )
    _, changed = resident.ensure(0, lambda _: None)
    assert len(loads) == 2
    assert changed.fetched is not None
    assert changed.fetched.source == "origin"


def test_rotten_weights_that_another_agent_uses_are_this_nodes_fault(tmp_path: Path, context: Context) -> None:
    one, other = NodeCache(tmp_path / "cache"), NodeCache(tmp_path / "cache")
    for cache in (one, other):
        path = cache.fetch(context).path / "weights"
    assert not one.mend(context)
    rot(path)
    with pytest.raises(Unfit, match="weights is damaged"):
        one.mend(context)


def rot(path: Path) -> None:
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(b"rotten")
