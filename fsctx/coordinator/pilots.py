"""What the batch systems say of a run's pilots, as far as they can be asked. The run's files never need it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsctx.coordinator.submit.base import BatchSystem, Seen
from fsctx.coordinator.submit.record import Submission, read_submissions
from fsctx.errors import InputError
from fsctx.store import Store

Open = Callable[[str], BatchSystem]
"""Returns a batch system by its name; see `submit.batch_system`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionView:
    """One submission that is not over, as its batch system tells."""

    name: str
    batch: str
    job: str
    """What the batch system calls it."""
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotsView:
    """All pilots of a run."""

    submissions: tuple[SubmissionView, ...] = ()
    unasked: tuple[str, ...] = ()
    """Why a batch system could not be asked."""

    @property
    def n_waiting_or_running(self) -> int:
        """How many pilots there are, those on hold too."""
        return sum(view.seen.queued + view.seen.running + view.seen.held for view in self.submissions)


def look_at_pilots(store: Store, open_system: Open) -> PilotsView:
    """Ask each batch system to which pilots of this run were submitted; pilots of a host tell by themselves."""
    views: list[SubmissionView] = []
    unasked: list[str] = []
    for batch, submissions in _by_batch(read_submissions(store)).items():
        try:
            views += _ask(open_system(batch), submissions)
        except InputError as error:
            unasked.append(f"{batch} cannot be asked from here: {error}")
    return PilotsView(submissions=tuple(views), unasked=tuple(unasked))


def remove_waiting(store: Store, open_system: Open) -> tuple[int, tuple[str, ...]]:
    """Take pilots that wait out of their queues; return how many, and why a batch system could not be asked."""
    n_removed = 0
    unasked: list[str] = []
    for batch, submissions in _by_batch(read_submissions(store)).items():
        try:
            n_removed += open_system(batch).remove([pilot for s in submissions for pilot in s.pilots])
        except InputError as error:
            unasked.append(f"{batch} cannot be asked from here: {error}")
    return n_removed, tuple(unasked)


def _by_batch(submissions: Sequence[Submission]) -> dict[str, list[Submission]]:
    found: dict[str, list[Submission]] = {}
    for submission in submissions:
        if submission.batch != "local" and submission.pilots:
            found.setdefault(submission.batch, []).append(submission)
    return found


def _ask(system: BatchSystem, submissions: Sequence[Submission]) -> list[SubmissionView]:
    records = [(submission, pilot) for submission in submissions for pilot in submission.pilots]
    seen = system.query([pilot for _, pilot in records])
    return [
        SubmissionView(name=submission.name, batch=submission.batch, job=pilot.id, seen=found)
        for (submission, pilot), found in zip(records, seen, strict=True)
        if found.gone < pilot.count
    ]
