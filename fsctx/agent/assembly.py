"""Puts the parts of an agent together."""

import hashlib
import time
from collections.abc import Callable
from random import Random

from fsctx.agent.ahead import Ahead
from fsctx.agent.behind import Behind
from fsctx.agent.engines.base import Engine
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.limits import Limits
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.owners import Owners
from fsctx.agent.pace import Pace
from fsctx.agent.residency import ContextMode, Residency
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.saver import Saver
from fsctx.agent.scout import Scout
from fsctx.agent.search import Search
from fsctx.agent.slices import Slices
from fsctx.agent.sources import source_of_files
from fsctx.agent.watch import Patience
from fsctx.protocol import processes
from fsctx.protocol.manifest import Context
from fsctx.protocol.verdicts import Origin

BEATS_PER_TTL = 6

GRACE_S = 20.0
"""How long an agent that leaves goes on trying to write what it computed."""

Say = Callable[[str], None]


def assemble(
    run: RunFiles,
    options: AgentOptions,
    *,
    engine_for: Callable[[Context], Engine],
    heartbeat: Heartbeat,
    leaving: Leaving,
    say: Say,
) -> Loop:
    """Return an agent that is ready to run."""
    manifest, events = run.manifest, heartbeat.events
    residency = Residency(
        tasks=manifest.tasks,
        contexts=run.contexts,
        templates=run.templates,
        mode=options.context,
        engine_for=engine_for,
        fetch=source_of_files(options),
        clock=time.monotonic,
    )
    limits = Limits(
        leaving=leaving,
        pace=Pace(unit_rows=manifest.geometry.unit_rows, hold_s=manifest.hold_s),
        max_units=options.max_units,
        is_one_by_one=options.context != ContextMode.FULL,
    )
    saver = Saver(store=run.store, run=manifest.run, labels=run.labels, origin=_origin(heartbeat, residency))
    return Loop(
        ahead=_ahead(run, options, residency, limits, saver, heartbeat),
        behind=Behind(
            saver=saver,
            heartbeat=heartbeat,
            events=events,
            leaving=leaving,
            clock=time.monotonic,
            grace_s=GRACE_S,
            say=say,
        ),
        residency=residency,
        heartbeat=heartbeat,
        events=events,
        limits=limits,
        save_s=options.save_s or manifest.save_s,
        clock=time.monotonic,
        say=say,
    )


def _ahead(
    run: RunFiles, options: AgentOptions, residency: Residency, limits: Limits, saver: Saver, heartbeat: Heartbeat
) -> Ahead:
    manifest, agent = run.manifest, heartbeat.agent
    chance = Random(int.from_bytes(hashlib.sha256(agent.encode()).digest()[:8]))
    scout = Scout(
        store=run.store,
        geometry=manifest.geometry,
        search=Search(manifest.geometry, manifest.tasks, chance),
        owners=Owners(
            store=run.store,
            me=agent,
            patience=Patience(ttl_s=manifest.ttl_s, stall_s=options.stall_s),
            is_dead=lambda record: processes.is_dead(record.process),
        ),
        agent=agent,
        chance=chance,
        reason_to_leave=limits.reason,
        give_back=heartbeat.release,
        longest_wait_s=manifest.ttl_s / BEATS_PER_TTL,
        idle_exit_s=options.idle_exit_s,
    )
    return Ahead(
        geometry=manifest.geometry,
        scout=scout,
        slices=Slices(run.store),
        saver=saver,
        residency=residency,
        heartbeat=heartbeat,
        events=heartbeat.events,
        columns=run.columns,
        clock=time.monotonic,
        wake=limits.leaving.wake,
    )


def _origin(heartbeat: Heartbeat, residency: Residency) -> Callable[[int], Origin]:
    def origin(generation: int) -> Origin:
        session = heartbeat.session
        return Origin(
            generation=generation,
            agent=session.agent,
            host=session.host,
            device=session.device,
            engine=residency.engine,
        )

    return origin
