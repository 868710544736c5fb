"""The batch system interface: how pilots are started, asked after and taken out of a queue.

This class is the specification; every implementation passes tests/contract/test_batch_systems.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fsctx.coordinator.submit.bootstrap import agent_words
from fsctx.coordinator.submit.record import Pilot
from fsctx.protocol import names
from fsctx.protocol.needs import Needs
from fsctx.store import Store

LEFT_OUT = "# left out: "
"""What a rendered line begins with that tells of an option which this batch system is too old for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a batch system says of the pilots that one record stands for. The counts sum to the record's count."""

    queued: int = 0
    running: int = 0
    held: int = 0
    """Wait, and will not start before somebody does something."""
    gone: int = 0
    unknown: int = 0
    """Cannot be seen from here."""
    notes: tuple[str, ...] = ()
    """Why pilots wait or are held, in words, with advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRequest:
    """What is to be started."""

    name: str
    """The submission's name."""
    run: Path
    """Absolute path of the run folder."""
    n: int
    since_order: int
    python: str
    """The interpreter that has fsctx; with an environment, one that starts the bootstrap."""
    cores: int
    """Cores that all pilots of a host may use together; for local pilots."""
    agent_options: tuple[str, ...] = ()
    """Passed on to `fsctx agent`."""
    on_gpu: bool = True
    needs: Needs = field(default_factory=Needs)
    excluded: tuple[str, ...] = ()
    """Hosts that failed this run's agents."""
    environment: str | None = None
    """Digest of the packed environment that a pilot unpacks on its node and runs from; None: fsctx is there."""


def facts_of(request: PilotRequest) -> dict[str, object]:
    """Return what every template is given."""
    return {
        "name": request.name,
        "run": str(request.run),
        "python": request.python,
        "agent": agent_words(request.run, request.environment),
        "n": request.n,
        "since_order": request.since_order,
        "agent_options": request.agent_options,
        "on_gpu": request.on_gpu,
        "needs": request.needs,
        "excluded": request.excluded,
        "logs": str(request.run / names.pilot_logs(request.name)),
    }


class BatchSystem(Protocol):
    """Starts pilots, each of which becomes one agent."""

    name: str
    reached: str
    """How the batch system is reached, and why that way; empty where there is one way only."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of what takes part, for the record."""

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """Return the text to submit: a pure function of its arguments, the template and the system's version.

        Raises:
            InputError: a setting that the template does not have, or one that it needs.
        """

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """Return why these pilots would never start here, as far as the system can be asked; empty: nothing known."""

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """Start `request.n` pilots with a rendered text and return what is known of them.

        Raises:
            InputError: refused for what it says; nothing was started.
            PilotsFailed: some could not be started; it says which ones were.
        """

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """Tell what became of each record's pilots.

        Raises:
            Unreachable: the batch system does not answer.
        """

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """Take those that did not start yet out of the queue, and return how many were; again does no harm.

        Pilots that run are left alone: they hear the run's orders.

        Raises:
            Unreachable: the batch system does not answer.
        """
