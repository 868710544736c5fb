"""What happened in a history, as lines for people, and as one hash to compare histories by."""

import hashlib
from dataclasses import dataclass, field

from simulation.clockwork import Process
from simulation.world import ROOT, Simulation


@dataclass(slots=True)
class Trace:
    """Collects each answered call: when, who, which call, on what, with what outcome."""

    lines: list[str] = field(default_factory=list)

    def attach(self, simulation: Simulation) -> None:
        """Begin to collect."""

        def on_answer(process: Process, what: str, path: str, outcome: str) -> None:
            name = path.removeprefix(f"{ROOT}/")
            self.lines.append(f"{simulation.clockwork.now_s:10.3f}  {process.name:14} {what:9} {name:52} {outcome}")

        simulation.server.on_answer = on_answer

    @property
    def digest(self) -> str:
        """A hash of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
