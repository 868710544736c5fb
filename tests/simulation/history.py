"""One seed, one history: who starts when, what goes wrong, and whether the laws hold to the end."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from fsctx.agent.engines.fake import FakeOptions
from fsctx.coordinator.collect.proof import prove_bucket, read_unit
from fsctx.coordinator.retry import retry
from fsctx.coordinator.status import read_status
from fsctx.errors import Damaged, StoreError
from fsctx.protocol import orders
from fsctx.store import PosixStore
from simulation.laws import LawBroken, Laws
from simulation.sharedfs import CALM, Weather
from simulation.world import TTL_S, Host, Shape, Simulation

TROUBLE_S = 900.0
"""Faults happen before; then the weather is calm, one healthy agent comes, and the run must end."""

END_S = TROUBLE_S + 60 * TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a history is made of; drawn from its seed, and made smaller to explain a failure."""

    seed: int
    shape: Shape
    n_hosts: int
    n_agents: int
    rows_per_s: float
    save_s: float
    weather: Weather
    n_kills: int
    n_freezes: int
    n_signals: int
    n_newcomers: int
    n_readers: int
    has_stop: bool
    is_full_for_a_while: bool


def draw(seed: int) -> Plan:
    """Draw the plan of a history."""
    chance = Random(f"plan {seed}")
    storm = chance.choice([0.0, 0.0, 0.01, 0.03, 0.08])
    return Plan(
        seed=seed,
        shape=Shape(
            n_rows=chance.choice([3, 5, 8]), unit_rows=chance.choice([1, 2, 3]), n_tasks=chance.choice([1, 1, 2])
        ),
        n_hosts=chance.choice([1, 2, 3]),
        n_agents=chance.choice([1, 2, 3, 4]),
        rows_per_s=chance.choice([0.02, 0.05, 0.2, 1.0]),
        save_s=chance.choice([5.0, 20.0, 1000.0]),
        weather=Weather(
            error=storm * chance.random(),
            lost_reply=storm * chance.random(),
            repeated=storm * chance.random(),
            late=storm * chance.random(),
            hang=chance.choice([0.0, 0.0, 0.003]),
            content_lag_s=chance.choice([0.0, 0.0, 3.0]),
            latency_s=chance.choice([0.001, 0.01, 0.3]),
        ),
        n_kills=chance.choice([0, 0, 1, 2, 3]),
        n_freezes=chance.choice([0, 0, 1, 2]),
        n_signals=chance.choice([0, 0, 1, 2]),
        n_newcomers=chance.choice([0, 1, 2]),
        n_readers=chance.choice([0, 1, 2]),
        has_stop=chance.random() < 0.1,
        is_full_for_a_while=chance.random() < 0.1,
    )


def run(plan: Plan) -> Simulation:
    """Live through a history.

    Raises:
        LawBroken: a law did not hold; anything else is a crash of the code itself.
    """
    engine = FakeOptions(rows_per_s=plan.rows_per_s, batch_tokens=2, load_s=1.0)
    simulation = Simulation(plan.seed, plan.shape, engine, save_s=plan.save_s)
    laws = Laws(simulation)
    laws.attach()
    hosts = [simulation.add_host(plan.weather) for _ in range(plan.n_hosts)]
    _populate(simulation, plan, hosts)
    _trouble(simulation, plan, hosts)
    simulation.clockwork.run(lambda: False, deadline_s=TROUBLE_S)
    _clear_up(simulation, hosts)
    simulation.clockwork.run(lambda: _is_over(simulation, laws), deadline_s=END_S)
    laws.check_end()
    _prove(simulation)
    return simulation


def _populate(simulation: Simulation, plan: Plan, hosts: list[Host]) -> None:
    chance = simulation.chance
    for _ in range(plan.n_agents):
        simulation.start_agent(chance.choice(hosts), after_s=chance.uniform(0.0, 10.0))
    for _ in range(plan.n_newcomers):
        simulation.start_agent(chance.choice(hosts), after_s=chance.uniform(10.0, TROUBLE_S))
    for number in range(plan.n_readers):
        simulation.start(chance.choice(hosts), f"reader{number}", lambda store: _reader(simulation, store))


def _trouble(simulation: Simulation, plan: Plan, hosts: list[Host]) -> None:
    chance = simulation.chance

    def at(when_s: float, act: Callable[[], None]) -> None:
        simulation.start(simulation.add_host(CALM), "fate", lambda store: act(), after_s=when_s)

    def anyone() -> str | None:
        alive = [name for name, process in simulation.agents.items() if not process.is_dead]
        return chance.choice(alive) if alive else None

    def kill() -> None:
        if (name := anyone()) is not None:
            simulation.clockwork.kill(simulation.agents[name])

    def freeze() -> None:
        if (name := anyone()) is not None:
            until_s = simulation.clockwork.now_s + chance.uniform(0.1, 4.0) * TTL_S
            simulation.agents[name].frozen_until_s = min(until_s, TROUBLE_S)

    def signal() -> None:
        if (name := anyone()) is not None:
            simulation.clockwork.signal(simulation.agents[name])

    for act, n in ((kill, plan.n_kills), (freeze, plan.n_freezes), (signal, plan.n_signals)):
        for _ in range(n):
            at(chance.uniform(1.0, TROUBLE_S / 2), act)
    if plan.has_stop:
        simulation.start(hosts[0], "stop", _stop, after_s=chance.uniform(1.0, TROUBLE_S / 2))
    if plan.is_full_for_a_while:
        start_s = chance.uniform(1.0, TROUBLE_S / 2)
        at(start_s, lambda: setattr(simulation.server, "is_full", True))
        at(start_s + chance.uniform(1.0, 200.0), lambda: setattr(simulation.server, "is_full", False))


def _stop(store: PosixStore) -> None:
    try:
        orders.give_order(store, "stop")
    except StoreError:
        pass


def _reader(simulation: Simulation, store: PosixStore) -> None:
    """Look at the run again and again, as status, collect --partial and retry do; what is done stays done."""
    geometry = simulation.manifest.geometry
    labels = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
    done: set[int] = set()
    while len(done) < geometry.n_units:
        simulation.clockwork.pause(simulation.chance.uniform(1.0, 200.0))
        try:
            read_status(store)
            winners = prove_bucket(store, geometry, 0).winners
            some = simulation.chance.sample(sorted(winners), min(1, len(winners)))
            tables = [read_unit(store, simulation.manifest, unit, labels=labels) for unit in some]
            retry(store, [], token=str(simulation.chance.random()))
        except StoreError:
            continue
        except Damaged as error:
            raise LawBroken(f"a reader saw damage: {error}") from error
        if not done <= winners.keys() or any(table is None for table in tables):
            raise LawBroken("law 2: a reader saw a published unit disappear")
        done |= winners.keys()


def _clear_up(simulation: Simulation, hosts: list[Host]) -> None:
    for host in simulation.hosts:
        host.client.weather = replace(CALM, content_lag_s=host.client.weather.content_lag_s)
    simulation.server.is_full = False
    simulation.start_agent(simulation.chance.choice(hosts), after_s=1.0)


def _is_over(simulation: Simulation, laws: Laws) -> bool:
    return len(laws.published) == simulation.manifest.geometry.n_units and all(
        process.is_dead for process in simulation.agents.values()
    )


def _prove(simulation: Simulation) -> None:
    """Law 1 as a person sees it: the proof of `collect` accepts the run."""
    found: list[int] = []

    def collect(store: PosixStore) -> None:
        winners = prove_bucket(store, simulation.manifest.geometry, 0).winners
        labels = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
        found.extend(unit for unit in winners if read_unit(store, simulation.manifest, unit, labels=labels) is not None)

    simulation.start(simulation.add_host(CALM), "collect", collect)
    simulation.clockwork.run(lambda: False, deadline_s=simulation.clockwork.now_s + 3600.0)
    if sorted(found) != list(range(simulation.manifest.geometry.n_units)):
        raise LawBroken(f"law 1: collect proves units {sorted(found)} alone")
