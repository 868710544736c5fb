"""What coordination costs: an agent's whole run beside the engine alone, on the same claims."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinating import pilots

DTYPE = "bfloat16"
"""The quicker precision: beside it coordination weighs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Runs of an agent and of the engine alone, which took turns: machines are noisy."""

    agent_s: tuple[float, ...]
    """From the first row to the last publication of each run: the start and the loading are left out."""
    alone_s: tuple[float, ...]
    inferring: float
    """Of the agent's time, what it spent computing."""

    @property
    def times(self) -> float:
        """The agent's time as a multiple of the engine's."""
        return statistics.mean(self.agent_s) / statistics.mean(self.alone_s)


def whole_runs(
    claims: Sequence[str], folder: Path, template: str, alone: Callable[[], object], *, rounds: int, scratch: Path
) -> Whole:
    """Let an agent do a run, and the engine the same claims, in turns; the engine is the first and the last."""
    alone_s, agent_s, inferring_s = [_timed(alone)], list[float](), list[float]()
    for number in range(rounds):
        run = pilots.plan(scratch / f"run-{number}", claims, "--template", template, model=folder)
        seconds, computing_s = pilots.worked(_work(run))
        agent_s.append(seconds)
        inferring_s.append(computing_s)
        alone_s.append(_timed(alone))
    return Whole(agent_s=tuple(agent_s), alone_s=tuple(alone_s), inferring=sum(inferring_s) / sum(agent_s))


def _work(run: Path) -> list[dict[str, Any]]:
    """Let an agent do a run, and return what it noted."""
    pilot = pilots.start(run, "--device", "cpu", "--dtype", DTYPE, "--no-peers", engine="hf")
    _, said = pilot.communicate()
    if pilot.returncode:
        sys.exit(f"an agent failed: {said.decode()}")
    return pilots.events(run)


def _timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s
