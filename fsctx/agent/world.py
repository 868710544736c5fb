"""Time, threads and facts of the host, as an agent's parts are given them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fsctx.agent.threads import OsThreads, Threads
from fsctx.protocol import processes
from fsctx.protocol.agents import AgentRecord


def _is_dead(record: AgentRecord) -> bool:
    return processes.is_dead(record.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The real one, unless a test gives another."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    sleep: Callable[[float], None] = time.sleep
    threads: Threads = field(default_factory=OsThreads)
    is_dead: Callable[[AgentRecord], bool] = _is_dead
    """Whether an agent's process is known to have ended."""
