"""What an agent does on a host that is no good: it says so in the run's ledger, and does not leave at once.

Whoever leaves a bad node quickly makes room there for the next pilot, until the node has eaten the whole queue.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fsctx.agent.leaving import Leaving
from fsctx.agent.world import World
from fsctx.errors import StoreError
from fsctx.protocol.hosts import HostFailure, record_host_failure
from fsctx.store import Store

DELAY_S = 60.0
"""A pilot keeps its bad slot so long for each failure of the host that is known …"""

MOST_DELAYS = 5
"""… but no longer than for so many."""

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Blames this host. `delay_s` is what was asked for; None is by the failures known, and none outside of jobs."""

    store: Store
    leaving: Leaving
    world: World
    is_in_job: bool
    delay_s: float | None
    say: Callable[[str], None]

    def host(self, failure: HostFailure) -> None:
        """Record a failure and wait, not longer than until a signal or the walltime ends it."""
        delay_s = self._delay_s(self._record(failure))
        if delay_s:
            self.say(f"{failure.reason}; leaving in {delay_s:.0f} s, so that this host does not eat the queue")
        end_s = self.world.clock() + delay_s
        while not self.leaving.now and (left_s := end_s - self.world.clock()) > 0:
            self.world.sleep(min(left_s, _LOOK_EVERY_S))

    def _record(self, failure: HostFailure) -> int:
        try:
            return record_host_failure(self.store, failure)
        except StoreError as error:  # the reason to leave stands all the same
            self.say(f"could not record that this host failed: {error}")
            return 1

    def _delay_s(self, n_failures: int) -> float:
        if self.delay_s is not None:
            return self.delay_s
        return DELAY_S * min(n_failures, MOST_DELAYS) if self.is_in_job else 0.0
