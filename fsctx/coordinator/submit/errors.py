"""What can go wrong while pilots are started."""

from collections.abc import Sequence

from fsctx.coordinator.submit.record import Pilot
from fsctx.errors import FsctxError, InputError


class PilotsFailed(FsctxError):
    """Some pilots could not be started; `started` were."""

    def __init__(self, message: str, started: Sequence[Pilot]) -> None:
        super().__init__(message)
        self.started = tuple(started)


class Unreachable(InputError):
    """The batch system does not answer from here, or not to this user."""
