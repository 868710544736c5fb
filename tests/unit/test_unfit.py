"""What an agent does where a device can't hold a context, or an engine ends: all that can be done all the same."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from planning import make_plan

from fsctx.agent.assembly import Parts, assemble
from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.agent.engines.fake import FakeEngine, FakeModel
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.world import World
from fsctx.cache import Fetched
from fsctx.errors import Unfit
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.manifest import Context
from fsctx.store import PosixStore


def plan_two_models(folder: Path) -> RunFiles:
    """Plan a run of the fake model and of one that stands for a large one."""
    (folder / "claims.txt").write_text("one\ntwo\nthree\n")
    large = folder / "large"
    large.mkdir()
    (large / "config.json").write_text("{}")
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
    assert loop.run() == "every unit is done"
    assert [line for line in said if "not doing" in line] == ["not doing large × fever: its weights take 140.0 GB"]
    leases = run.store.list(names.bucket_folder(names.LEASES, 0))
    of_fake = [task.model for task in run.manifest.tasks].index("fake")
    units = {run.manifest.geometry.unit_of(task=of_fake, slice_number=number) for number in range(3)}
    assert {int(name.partition(".")[0]) for name in leases} == units


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
