"""What an agent does where a device can't hold a context, or an engine ends: all that can be done all the same."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planning import make_plan

from fsctx.agent.assembly import Parts, assemble
from fsctx.agent.decide import FINISHED_OWN
from fsctx.agent.device import DeviceInfo
from fsctx.agent.engines.base import BoundTask, Encoded, Row, Split
from fsctx.agent.engines.fake import FakeEngine, FakeModel
from fsctx.agent.engines.of_run import check_context, uses_device
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.start import run_agent
from fsctx.agent.world import World
from fsctx.cache import Fetched
from fsctx.errors import Misconfigured, Unfit
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.manifest import Context
from fsctx.store import PosixStore

CLASSIFIER = '{"architectures": ["BertForSequenceClassification"]}'
CPU = DeviceInfo(name="cpu", kind="cpu", index=0, memory_bytes=1 << 34, free_bytes=1 << 34)


def plan_two_models(folder: Path, config: str = "{}") -> RunFiles:
    """Plan a run of the fake model and of one that stands for a large one, or for what its `config` says."""
    (folder / "claims.txt").write_text("one\ntwo\nthree\n")
    large = folder / "large"
    large.mkdir()
    (large / "config.json").write_text(config)
    (large / "model.safetensors").write_bytes(b"0" * 1000)
    make_plan(folder / "claims.txt", run=folder / "run", models=("fake", str(large)), unit_rows=1)
    return read_run(PosixStore(folder / "run"))


def refuse_large(context: Context) -> None:
    if context.files:
        raise Unfit("its weights take 140.0 GB")


def agent(run: RunFiles, folder: Path, engine: FakeEngine, **more: Any) -> Loop:
    """Return an agent with real threads that is ready to run."""
    world = World()
    run.store.make_folder(names.agent_folder("a"))
    events = EventLog(run.store, "a", clock=world.clock, utc=str)
    session = Session(agent="a", counter=0, progress=0, state=AgentState.STARTING, host="h", device="fake")
    given: dict[str, Any] = {"say": lambda _: None, **more}
    parts = Parts(
        run=run,
        options=AgentOptions(cache=folder / "cache"),
        world=world,
        heartbeat=Heartbeat(run.store, session, events, beat_s=1.0, threads=world.threads),
        leaving=Leaving(baseline=0, deadline_s=None, margin_s=0.0, clock=world.clock, threads=world.threads),
        engine_for=lambda _: engine,
        fetch=lambda context, _: Fetched(path=folder, source="node", seconds=0.0, bytes=0, size_bytes=0),
        **given,
    )
    return assemble(parts)


def test_units_of_a_context_that_is_too_large_are_not_leased_and_others_are_done(tmp_path: Path) -> None:
    run, said = plan_two_models(tmp_path), list[str]()
    loop = agent(run, tmp_path, FakeEngine(), check=refuse_large, say=said.append)
    assert loop.run() == FINISHED_OWN
    assert [line for line in said if "not doing" in line] == ["not doing large × fever: its weights take 140.0 GB"]
    assert leased(run) == units_of(run, "fake")


def leased(run: RunFiles) -> set[int]:
    return {int(name.partition(".")[0]) for name in run.store.list(names.bucket_folder(names.LEASES, 0))}


def units_of(run: RunFiles, model: str) -> set[int]:
    task = [task.model for task in run.manifest.tasks].index(model)
    return {run.manifest.geometry.unit_of(task=task, slice_number=number) for number in range(3)}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"engine": "vllm"}, "it is a classifier, which --engine vllm does not do: use --engine hf or auto"),
        ({"split": Split(tp=2)}, "it is a classifier, which can't be split: do without --tp 2 --pp 1"),
    ],
)
def test_units_of_a_context_that_the_engine_keeps_off_are_not_leased_and_others_are_done(
    tmp_path: Path, asked: dict[str, Any], why: str
) -> None:
    run, said = plan_two_models(tmp_path, CLASSIFIER), list[str]()
    check = partial(check_context, AgentOptions(cache=tmp_path, **asked), CPU)
    assert agent(run, tmp_path, FakeEngine(), check=check, say=said.append).run() == FINISHED_OWN
    assert [line for line in said if "not doing" in line] == [f"not doing large × fever: {why}"]
    assert leased(run) == units_of(run, "fake")


def test_an_engine_that_keeps_off_all_contexts_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = plan_two_models(tmp_path, CLASSIFIER)
    (tmp_path / "alone").mkdir()
    make_plan(tmp_path / "claims.txt", run=tmp_path / "alone" / "run", models=(str(tmp_path / "large"),))
    alone = read_run(PosixStore(tmp_path / "alone" / "run"))
    options = AgentOptions(engine="vllm", cache=tmp_path / "cache")
    assert uses_device(run, options)
    with pytest.raises(Misconfigured, match=r"^large: it is a classifier, .* use --engine hf or auto$"):
        run_agent(tmp_path / "alone" / "run", options, say=lambda _: None)
    assert not alone.store.list(names.AGENTS)


def test_a_context_of_the_same_name_does_not_hide_one_that_the_engine_does(tmp_path: Path) -> None:
    run = plan_two_models(tmp_path, CLASSIFIER)
    twins = {digest: replace(context, name="same") for digest, context in run.contexts.items()}
    assert uses_device(replace(run, contexts=twins), AgentOptions(engine="vllm", cache=tmp_path))


@pytest.mark.parametrize("models", [("fake", "large"), ("large", "fake")])
def test_where_one_context_wants_another_node_the_end_says_so_whatever_is_refused_before_and_after(
    tmp_path: Path, models: tuple[str, str]
) -> None:
    run = plan_two_models(tmp_path)
    order = sorted(run.manifest.tasks, key=lambda task: models.index(task.model))

    def refuse_both(context: Context) -> None:
        if context.files:
            raise Unfit("its weights take 140.0 GB")
        raise Misconfigured("the engine does not do it")

    run = replace(run, manifest=replace(run.manifest, tasks=tuple(order)))
    with pytest.raises(Unfit, match=r"140\.0 GB"):
        agent(run, tmp_path, FakeEngine(), check=refuse_both).run()


class DiesAhead(FakeEngine):
    """An engine that has ended when rows are encoded in the background, and lives when they are computed."""

    n_died = 0

    def load(self, files: Path) -> FakeModel:
        model = super().load(files)
        bind = model.bind

        def bind_one_that_dies(task: BoundTask) -> Any:
            bound: Any = bind(task)
            encode = bound.encode

            def encode_on_the_main_thread_alone(rows: Sequence[Row]) -> list[Encoded]:
                if threading.current_thread() is not threading.main_thread():
                    self.n_died += 1
                    raise Unfit("the process that encodes rows has ended")
                found: list[Encoded] = encode(rows)
                return found

            return SimpleNamespace(encode=encode_on_the_main_thread_alone, infer=bound.infer)

        model.bind = bind_one_that_dies  # type: ignore[method-assign]
        return model


def test_an_engine_that_ends_while_rows_are_encoded_ahead_does_not_end_the_agent(tmp_path: Path) -> None:
    run, engine = plan_two_models(tmp_path), DiesAhead()
    assert agent(run, tmp_path, engine).run() == "every unit is done"
    assert engine.n_died > 0
