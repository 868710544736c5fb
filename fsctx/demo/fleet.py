"""The demo's agents: started as `fsctx submit --batch local` starts them, one killed, none left behind."""

import contextlib
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType

from fsctx.coordinator.progress import AgentView, Status
from fsctx.coordinator.stop import stop
from fsctx.coordinator.submit import submit as submitting
from fsctx.coordinator.submit.base import PilotRequest
from fsctx.coordinator.submit.errors import PilotsFailed
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import Pilot
from fsctx.errors import StoreError
from fsctx.protocol import buckets, leases, processes
from fsctx.protocol.agents import read_agent
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.names import LeaseId
from fsctx.protocol.orders import read_orders
from fsctx.protocol.processes import Process
from fsctx.store import Store

GRACE_S = 20.0
"""So long may agents take to leave by themselves, and once more when told to, before they are killed."""

_LOOK_S = 0.1


@dataclass(slots=True)
class Fleet:
    """Local pilots of one run. `wait` is what passes the time between two looks."""

    store: Store
    wait: Callable[[float], object] = time.sleep
    pilots: list[Pilot] = field(default_factory=list)
    _system: Local = field(default_factory=Local)

    def start(self, n: int, agent_options: Sequence[str]) -> None:
        """Start `n` agents.

        Raises:
            PilotsFailed: some did not start; those that did are known.
        """
        request = PilotRequest(
            name=f"local-{secrets.token_hex(4)}",
            run=self.store.root,
            n=n,
            since_order=read_orders(self.store).last,
            python=sys.executable,
            cores=len(os.sched_getaffinity(0)),
            agent_options=tuple(agent_options),
        )
        created = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            self.pilots += submitting.submit(self.store, self._system, request, {}, created=created).pilots
        except PilotsFailed as error:
            self.pilots += error.started
            raise

    @property
    def n_running(self) -> int:
        """How many of the pilots still run."""
        return sum(seen.running for seen in self._system.query(self.pilots))

    def kill(self, agent: str) -> Process | None:
        """Kill one of this fleet's agents without warning (SIGKILL); None where it is gone already."""
        record = read_agent(self.store, agent)
        ours = [pilot.process for pilot in self.pilots]
        if record is None or record.process not in ours or processes.is_dead(record.process):
            return None
        os.kill(record.process.pid, signal.SIGKILL)
        return record.process

    def see_out(self) -> None:
        """Wait until all agents left by themselves; those that don't are told to, and at last killed."""
        if not self._are_gone_within(GRACE_S):
            self.end()

    def end(self) -> None:
        """Tell all agents to save and leave; kill those that don't."""
        try:
            with contextlib.suppress(StoreError):
                stop(self.store, "stop")  # reaches also a pilot that was not recorded yet
            self._system.terminate(self.pilots)
            self._are_gone_within(GRACE_S)
        finally:
            for pilot in self.pilots:
                _kill_for_good(pilot.process)

    def _are_gone_within(self, seconds: float) -> bool:
        end_s = time.monotonic() + seconds
        while self.n_running:
            if time.monotonic() > end_s:
                return False
            self.wait(_LOOK_S)
        return True


@contextlib.contextmanager
def fleet_of(store: Store) -> Iterator[Fleet]:
    """Give a fleet that ends with the block, however that ends: by itself, by an error, by a signal."""
    fleet = Fleet(store)
    with _signals_as_interrupt():
        try:
            yield fleet
        except BaseException:
            fleet.end()
            raise
        fleet.see_out()


def units_in_hand(store: Store, geometry: Geometry) -> Counter[str]:
    """Count the unfinished units that each agent holds."""
    held: Counter[str] = Counter()
    for bucket in range(geometry.n_buckets):
        leased = buckets.look(store, geometry, bucket).leased
        held.update(leases.owner_of(store, LeaseId(unit, generation)) or "" for unit, generation in leased.items())
    return held


def choose_victim(status: Status, held: Mapping[str, int]) -> AgentView | None:
    """Choose whom to kill: while another one lives, the one with the most units in hand, which are orphans then."""
    alive = [agent for agent in status.agents if agent.is_alive]
    holding = [agent for agent in alive if held.get(agent.agent)]
    if len(alive) < 2 or not holding:
        return None
    return max(holding, key=lambda agent: (held[agent.agent], agent.agent))


def _kill_for_good(process: Process | None) -> None:
    if process is not None and not processes.is_dead(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the block as Ctrl-C does, so that what must be ended is."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
