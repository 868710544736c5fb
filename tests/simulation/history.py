"""One seed, one history: who starts when, what goes wrong, and whether the laws hold to the end."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

from fsctx.agent.engines.fake import FakeOptions
from fsctx.coordinator.collect.proof import prove_bucket
from fsctx.store import PosixStore
from simulation import people, planting, remembered
from simulation.clockwork import Process
from simulation.effort import Effort
from simulation.laws import LawBroken, Laws
from simulation.pilots import start_agent
from simulation.plan import Plan
from simulation.sharedfs import CALM
from simulation.trace import Trace
from simulation.world import TTL_S, Host, Simulation

TROUBLE_S = 900.0
"""Faults happen before; then the weather is calm, a healthy agent comes, and the run must end."""

SETTLED_S = 350.0
"""So long after the trouble no call of that time can take effect any more: hung or late ones did."""

END_S = TROUBLE_S + SETTLED_S + 60 * TTL_S


class History:
    """A plan, and what comes of it."""

    def __init__(self, plan: Plan, trace: Trace | None = None) -> None:
        self.plan = plan
        engine = FakeOptions(rows_per_s=plan.rows_per_s, batch_tokens=2, load_s=1.0)
        self.simulation = Simulation(
            plan.seed, plan.shape, engine, save_s=plan.save_s, publish=plan.publish, compacts=plan.compacts
        )
        self.simulation.poison_row = plan.shape.n_rows - 1 if plan.has_poison else None
        self.laws = Laws(self.simulation)
        self.effort = Effort(self.simulation, self.laws, plan)
        self.simulation.server.on_change = self.laws.on_change
        self.simulation.server.on_call = self._on_call
        self.simulation.on_exit = self.effort.on_exit
        if trace is not None:
            trace.attach(self.simulation)

    def run(self) -> None:
        """Live through it.

        Raises:
            LawBroken: a law did not hold; anything else is a crash of the code itself.
        """
        with _decided_by(self.plan.seed):
            try:
                self._run()
            finally:
                self.simulation.clockwork.close()

    def _run(self) -> None:
        hosts = [self.simulation.add_host(self.plan.weather) for _ in range(self.plan.n_hosts)]
        self._populate(hosts)
        self._befall(hosts)
        self.simulation.clockwork.run(lambda: False, deadline_s=TROUBLE_S)
        self._clear_up(hosts)
        self.simulation.clockwork.run(self._is_over, deadline_s=END_S * (3 if self.plan.has_poison else 1))
        self.laws.check_end()
        self.effort.check_end()
        self._prove()

    def _on_call(self, process: Process, what: str, path: str) -> None:
        self.laws.on_call(process, what, path)
        self.effort.on_call(process, what, path)

    def _populate(self, hosts: list[Host]) -> None:
        simulation, chance = self.simulation, self.simulation.chance
        for _ in range(self.plan.n_agents):
            start_agent(simulation, chance.choice(hosts), after_s=chance.uniform(0.0, 10.0))
        for _ in range(self.plan.n_newcomers):
            start_agent(simulation, chance.choice(hosts), after_s=chance.uniform(10.0, TROUBLE_S))
        for number in range(self.plan.n_readers):
            reader = people.Reader(simulation, self.laws)
            simulation.start(chance.choice(hosts), f"reader{number}", reader.read)

    def _befall(self, hosts: list[Host]) -> None:
        """Put down what will happen when."""
        plan, simulation, chance = self.plan, self.simulation, self.simulation.chance
        some_time = lambda: chance.uniform(1.0, TROUBLE_S / 2)  # noqa: E731
        fates: list[tuple[Callable[[], None], int]] = [
            (self._kill, plan.n_kills),
            (self._freeze, plan.n_freezes),
            (self._signal, plan.n_signals),
            (lambda: planting.plant_junk(simulation), plan.n_junk),
            (lambda: planting.damage_shard(simulation, for_s=chance.uniform(1.0, 300.0)), int(plan.has_damage)),
            (self._plant_link, int(plan.has_planted_link)),
            (self._fill_disk, int(plan.is_full_for_a_while)),
        ]
        for act, times in fates:
            for _ in range(times):
                self._at(some_time(), act)
        for _ in range(plan.n_retries):
            self._retry(chance.choice(hosts), some_time())
        if plan.has_stop:
            simulation.start(hosts[0], "stop", people.stop_run, after_s=some_time())

    def _at(self, when_s: float, act: Callable[[], None]) -> None:
        self.simulation.clockwork.spawn(Process(name="fate", host="sky"), act, after_s=when_s)

    def _anyone(self) -> Process | None:
        alive = [process for process in self.simulation.agents.values() if not process.is_dead]
        return self.simulation.chance.choice(alive) if alive else None

    def _kill(self) -> None:
        if (process := self._anyone()) is not None:
            self.simulation.clockwork.kill(process)

    def _freeze(self) -> None:
        if (process := self._anyone()) is not None:
            until_s = self.simulation.clockwork.now_s + self.simulation.chance.uniform(0.1, 4.0) * TTL_S
            self.simulation.clockwork.freeze(process, min(until_s, TROUBLE_S))

    def _signal(self) -> None:
        if (process := self._anyone()) is not None:
            self.simulation.clockwork.signal(process)

    def _plant_link(self) -> None:
        self.laws.planted = planting.plant_link(self.simulation)

    def _fill_disk(self) -> None:
        self.simulation.server.is_full = True
        self.simulation.clockwork.pause(self.simulation.chance.uniform(1.0, 200.0))
        self.simulation.server.is_full = False

    def _retry(self, host: Host, when_s: float) -> None:
        """Let a person put failed units back, and perhaps be interrupted."""
        simulation = self.simulation
        retry = lambda store: people.retry_failed(simulation, store)  # noqa: E731
        process = simulation.start(host, "retry", retry, after_s=when_s)
        if simulation.chance.random() < 0.5:
            lives_s = simulation.chance.random() * 24 * self.plan.weather.latency_s
            self._at(when_s + lives_s, lambda: simulation.clockwork.kill(process))

    def _clear_up(self, hosts: list[Host]) -> None:
        """End all faults. Then a person does what the messages say, and starts an agent where none is left."""
        simulation = self.simulation
        for host in simulation.hosts:
            host.client.weather = replace(CALM, content_lag_s=host.client.weather.content_lag_s)
        simulation.server.is_full = False
        needs_rest = self.plan.has_damage or self.plan.has_stop or self.plan.has_planted_link

        def mend(store: PosixStore) -> None:
            if self.laws.planted is not None:
                people.remove_planted(store, self.laws.planted)
            while not self._is_over():
                people.retry_failed(simulation, store)
                if self._anyone() is None:
                    start_agent(simulation, simulation.chance.choice(hosts))
                simulation.clockwork.pause(TTL_S)

        healthy = simulation.add_host(CALM)
        simulation.start(healthy, "person", mend, after_s=SETTLED_S if needs_rest else 1.0)

    def _is_over(self) -> bool:
        return self.laws.units <= self.laws.published.keys() and all(
            process.is_dead for process in self.simulation.agents.values()
        )

    def _prove(self) -> None:
        """Law 1 as a person sees it: the proof of `collect` accepts the run."""
        simulation, found = self.simulation, set()

        def collect(store: PosixStore) -> None:
            if self.laws.planted is not None:  # of a unit that was dropped, nobody else minds it
                people.remove_planted(store, self.laws.planted)
            winners = prove_bucket(store, simulation.manifest.geometry, 0).winners
            found.update(unit for unit in winners if people.is_right(simulation, store, unit))

        simulation.start(simulation.add_host(CALM), "collect", collect)
        simulation.clockwork.run(lambda: False, deadline_s=simulation.clockwork.now_s + 3600.0)
        if found != self.laws.units:
            raise LawBroken(f"law 1: collect proves units {sorted(found)} alone")


def run(plan: Plan, trace: Trace | None = None) -> Simulation:
    """Live through a history; see `History.run`."""
    history = History(plan, trace)
    history.run()
    return history.simulation


@contextlib.contextmanager
def _decided_by(seed: int) -> Iterator[None]:
    """Let nothing but the seed decide: names of temporary files, and the waits that tenacity spreads at random."""
    names, before = Random(f"names {seed}"), random.getstate()
    random.seed(f"waits {seed}")
    try:
        with (
            patch("fsctx.store.posix.secrets.token_hex", lambda n: f"{names.getrandbits(8 * n):0{2 * n}x}"),
            remembered.parquet(),
        ):
            yield
    finally:
        random.setstate(before)
