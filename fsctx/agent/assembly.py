"""Puts the parts of an agent together."""

import functools
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from fsctx.agent.ahead import Ahead
from fsctx.agent.behind import MAX_WAITING, Behind
from fsctx.agent.compactor import Compactor
from fsctx.agent.engines.base import Engine
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.limits import Limits
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.owners import Owners
from fsctx.agent.pace import MAX_UNITS, Pace
from fsctx.agent.patrol import Patrol, Rounds
from fsctx.agent.residency import ContextMode, Residency
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.saver import Saver
from fsctx.agent.scout import Scout
from fsctx.agent.search import Search
from fsctx.agent.slices import Slices
from fsctx.agent.sources import Source
from fsctx.agent.tail import Tail
from fsctx.agent.watch import Patience
from fsctx.agent.world import World
from fsctx.protocol import leases
from fsctx.protocol.manifest import Context
from fsctx.protocol.sweep import extent_of
from fsctx.protocol.verdicts import Origin

if TYPE_CHECKING:
    from fsctx.agent.referee import Referee

BEATS_PER_TTL = 6

GRACE_S = 20.0
"""How long an agent that leaves goes on trying to write what it computed."""

SHARE = 32
"""Nobody takes more than this part of a run at once, but for some seconds' work."""

Say = Callable[[str], None]
"""Tells a person something, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an agent is made of."""

    run: RunFiles
    options: AgentOptions
    world: World
    heartbeat: Heartbeat
    leaving: Leaving
    engine_for: Callable[[Context], Engine]
    fetch: Source
    say: Say
    mend: Callable[[Context], bool] = lambda _: False
    """See `Residency.mend`."""
    on_node: Callable[[], Collection[str]] = tuple
    """Returns the contexts whose files are on this node."""
    check: Callable[[Context], None] = lambda _: None
    """Raises `Unfit` or `Misconfigured` for a context that can't be done here, by its size or kind."""


def assemble(parts: Parts) -> Loop:
    """Return an agent that is ready to run."""
    run, options, world, heartbeat = parts.run, parts.options, parts.world, parts.heartbeat
    residency = Residency(
        tasks=run.manifest.tasks,
        contexts=run.contexts,
        templates=run.templates,
        mode=options.context,
        engine_for=parts.engine_for,
        fetch=parts.fetch,
        mend=parts.mend,
        on_node=parts.on_node,
        check=parts.check,
        clock=world.clock,
    )
    saver = Saver(store=run.store, run=run.manifest.run, labels=run.labels, origin=_origin(heartbeat, residency))
    limits = _limits(parts)
    behind = _behind(parts, saver)
    ahead = _ahead(parts, residency, limits, behind)
    return Loop(
        ahead=ahead,
        behind=behind,
        residency=residency,
        heartbeat=heartbeat,
        events=heartbeat.events,
        limits=limits,
        save_s=options.save_s or run.manifest.save_s,
        clock=world.clock,
        say=parts.say,
        worker=world.threads.worker("ahead"),
        rounds=Rounds(go=ahead.go_round, every_s=ahead.scout.patrol.every_s, clock=world.clock),
    )


def _limits(parts: Parts) -> Limits:
    manifest = parts.run.manifest
    pace = Pace(
        unit_rows=manifest.geometry.unit_rows,
        hold_s=manifest.hold_s,
        share=min(MAX_UNITS, manifest.geometry.n_units // SHARE),
    )
    return Limits(
        leaving=parts.leaving,
        pace=pace,
        max_units=parts.options.max_units,
        is_one_by_one=parts.options.context != ContextMode.FULL,
    )


def _behind(parts: Parts, saver: Saver) -> Behind:
    threads = parts.world.threads
    return Behind(
        saver=saver,
        heartbeat=parts.heartbeat,
        events=parts.heartbeat.events,
        leaving=parts.leaving,
        clock=parts.world.clock,
        grace_s=GRACE_S,
        say=parts.say,
        worker=threads.worker("behind"),
        room=threads.room(MAX_WAITING),
        sleep=parts.world.sleep,
        compactor=_compactor(parts),
    )


def _compactor(parts: Parts) -> Compactor:
    run, agent = parts.run, parts.heartbeat.agent
    return Compactor(
        store=run.store,
        manifest=run.manifest,
        labels=[run.labels(task) for task in range(len(run.manifest.tasks))],
        events=parts.heartbeat.events,
        agent=agent,
        chance=_chance(agent),
    )


def _chance(agent: str) -> Random:
    return Random(int.from_bytes(hashlib.sha256(agent.encode()).digest()[:8]))


def _ahead(parts: Parts, residency: Residency, limits: Limits, behind: Behind) -> Ahead:
    slices = Slices(parts.run.store, run=parts.run.manifest.run)
    return Ahead(
        geometry=parts.run.manifest.geometry,
        scout=_scout(parts, limits, slices),
        slices=slices,
        saver=behind.saver,
        residency=residency,
        heartbeat=parts.heartbeat,
        events=parts.heartbeat.events,
        columns=functools.cache(parts.run.columns),  # it parses the template
        clock=parts.world.clock,
        wake=parts.leaving.wake,
        rest=behind.rest,
        say=parts.say,
    )


def _scout(parts: Parts, limits: Limits, slices: Slices) -> Scout:
    manifest, agent = parts.run.manifest, parts.heartbeat.agent
    chance = _chance(agent)
    patience = Patience(
        ttl_s=manifest.ttl_s,
        stall_s=parts.options.stall_s,
        race_factor=parts.options.race_factor,
        race_from_s=manifest.hold_s,  # so long may a unit wait for its turn at a holder that is not slow at all
    )
    owners = Owners(
        store=parts.run.store,
        me=agent,
        patience=patience,
        is_dead=parts.world.is_dead,
        owner_of=leases.owner_of,
        unit_s=lambda: limits.pace.unit_s,
        given_back=lambda: parts.heartbeat.session.released,
    )
    search = Search(manifest.geometry, manifest.tasks, chance, extent=extent_of(manifest.geometry, manifest.sweep))
    tail = Tail(
        store=parts.run.store,
        geometry=manifest.geometry,
        search=search,
        owners=owners,
        me=agent,
        chance=chance,
        ttl_s=manifest.ttl_s,
        referee=_referee(parts, limits, search, slices) if manifest.sweep else None,
    )
    return Scout(
        store=parts.run.store,
        geometry=manifest.geometry,
        search=search,
        owners=owners,
        tail=tail,
        patrol=Patrol(search=search, owners=owners, chance=chance, ttl_s=manifest.ttl_s),
        agent=agent,
        reason_to_leave=limits.reason,
        give_back=parts.heartbeat.release,
        clock=parts.world.clock,
        idle_exit_s=parts.options.idle_exit_s,
    )


def _referee(parts: Parts, limits: Limits, search: Search, slices: Slices) -> "Referee":
    from fsctx.agent.referee import Referee  # numpy and scipy, which other runs do without

    heartbeat = parts.heartbeat
    return Referee(
        run=parts.run,
        search=search,
        slices=slices,
        agent=heartbeat.agent,
        events=heartbeat.events,
        chance=_chance(heartbeat.agent),
        utc=heartbeat.events.utc,
        clock=parts.world.clock,
        reason_to_leave=limits.reason,
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
