"""Contexts that a device can't hold: none of their units is leased, and all others are done."""

from pathlib import Path

from planning import make_plan

from fsctx.agent.assembly import Parts, assemble
from fsctx.agent.engines.fake import FakeEngine
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
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


def test_units_of_a_context_that_is_too_large_are_not_leased_and_others_are_done(tmp_path: Path) -> None:
    run, world, said = plan_two_models(tmp_path), World(), list[str]()
    run.store.make_folder(names.agent_folder("a"))
    events = EventLog(run.store, "a", clock=world.clock, utc=str)
    session = Session(agent="a", counter=0, progress=0, state=AgentState.STARTING, host="h", device="fake")
    parts = Parts(
        run=run,
        options=AgentOptions(cache=tmp_path / "cache"),
        world=world,
        heartbeat=Heartbeat(run.store, session, events, beat_s=1.0, threads=world.threads),
        leaving=Leaving(baseline=0, deadline_s=None, margin_s=0.0, clock=world.clock, threads=world.threads),
        engine_for=lambda _: FakeEngine(),
        fetch=lambda context, _: Fetched(path=tmp_path, source="node", seconds=0.0, bytes=0, size_bytes=0),
        check=refuse_large,
        say=said.append,
    )
    assert assemble(parts).run() == "every unit is done"
    assert [line for line in said if "not doing" in line] == ["not doing large × fever: its weights take 140.0 GB"]
    leases = run.store.list(names.bucket_folder(names.LEASES, 0))
    of_fake = [task.model for task in run.manifest.tasks].index("fake")
    units = {run.manifest.geometry.unit_of(task=of_fake, slice_number=number) for number in range(3)}
    assert {int(name.partition(".")[0]) for name in leases} == units
