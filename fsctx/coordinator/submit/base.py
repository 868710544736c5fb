"""The batch system interface: how pilots are started, asked after and removed.

This class is the specification; every implementation passes tests/contract/test_batch_systems.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from fsctx.coordinator.submit.record import Pilot
from fsctx.store import Store


class PilotState(StrEnum):
    """What a batch system says of a pilot."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    GONE = "gone"


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
    """The interpreter that has fsctx."""
    cores: int
    """Cores that all pilots of a host may use together."""
    agent_options: tuple[str, ...] = ()
    """Passed on to `fsctx agent`."""


class BatchSystem(Protocol):
    """Starts pilots, each of which becomes one agent."""

    name: str

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """Return the text to submit: a pure function of its arguments and the template.

        Raises:
            InputError: a setting that the template does not have, or one that it needs.
        """

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """Start `request.n` pilots with a rendered text and return what is known of them.

        Raises:
            InputError: refused for what it says; nothing was started.
            PilotsFailed: some could not be started; it says which ones were.
        """

    def query(self, pilots: Sequence[Pilot]) -> Sequence[PilotState]:
        """Return each pilot's state. Pilots that cannot be seen from here are `QUEUED`: nothing is known of them."""

    def remove(self, pilots: Sequence[Pilot]) -> None:
        """Tell pilots to save and leave (SIGTERM); those that are gone already do not matter."""
