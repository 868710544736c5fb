"""A batch system in memory, for tests: slots that pilots take in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsctx.coordinator.submit.base import PilotRequest, Seen
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.record import Pilot
from fsctx.coordinator.submit.texts import render
from fsctx.store import Store

_TEXT = "{{ n }} pilots of {{ name }}{% if note is defined %}, {{ note }}{% endif %}\n"


@dataclass(slots=True, kw_only=True)
class _Job:
    id: str
    queued: int
    running: int = 0
    gone: int = 0


class FakeBatch:
    """See `BatchSystem`. Pilots start when `start` says so, and are gone when `end` does."""

    name = "fake"
    reached = "the fake batch system"

    def __init__(self, *, objections: Sequence[str] = ()) -> None:
        self.is_reachable = True
        self._objections = tuple(objections)
        self._jobs: list[_Job] = []

    @property
    def versions(self) -> Mapping[str, str]:
        """See `BatchSystem.versions`."""
        return {"fake": "1"}

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """See `BatchSystem.render`."""
        return render(_TEXT, {"n": request.n, "name": request.name}, settings, where="the fake template")

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """See `BatchSystem.objections`."""
        return self._objections

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """See `BatchSystem.submit`."""
        self._answer()
        self._jobs.append(_Job(id=str(len(self._jobs) + 1), queued=request.n))
        return [Pilot(id=self._jobs[-1].id, count=request.n)]

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """See `BatchSystem.query`."""
        self._answer()
        found = {job.id: job for job in self._jobs}
        return [_seen(pilot, found.get(pilot.id)) for pilot in pilots]

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """See `BatchSystem.remove`."""
        self._answer()
        theirs = [job for job in self._jobs if job.id in {pilot.id for pilot in pilots}]
        n_removed = sum(job.queued for job in theirs)
        for job in theirs:
            job.gone, job.queued = job.gone + job.queued, 0
        return n_removed

    def start(self, pilot: Pilot, n: int = 1) -> None:
        """Let pilots of a job start."""
        job = self._jobs[int(pilot.id) - 1]
        job.queued, job.running = job.queued - n, job.running + n

    def end(self, pilot: Pilot, n: int = 1) -> None:
        """Let pilots of a job end."""
        job = self._jobs[int(pilot.id) - 1]
        job.running, job.gone = job.running - n, job.gone + n

    def _answer(self) -> None:
        if not self.is_reachable:
            raise Unreachable("the fake batch system does not answer")


def _seen(pilot: Pilot, job: _Job | None) -> Seen:
    return Seen(gone=pilot.count) if job is None else Seen(queued=job.queued, running=job.running, gone=job.gone)
