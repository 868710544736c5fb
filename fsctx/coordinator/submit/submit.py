"""Submitting pilots to a run: render, record, start, record again."""

import dataclasses
from collections.abc import Mapping, Sequence

from fsctx import __version__
from fsctx.coordinator.submit.base import LEFT_OUT, BatchSystem, PilotRequest
from fsctx.coordinator.submit.errors import PilotsFailed, Unreachable
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import Submission, forget_submission, write_submission
from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError
from fsctx.store import Store

MOST_PILOTS = 4000
"""Each has a log, and no folder of a run grows beyond 4,096 names."""

BATCH_SYSTEMS = ("htcondor", "slurm", "gridengine", "local")


def batch_system(name: str, templates: Templates = Templates()) -> BatchSystem:  # noqa: B008 - immutable
    """Return a batch system by its name, reached from here if it can be.

    Raises:
        InputError: there is none of this name.
    """
    match name:
        case "local":
            return Local(templates)
        case "htcondor":
            from fsctx.coordinator.submit.htcondor.system import open_htcondor

            return open_htcondor(templates)
        case "slurm":
            from fsctx.coordinator.submit.slurm import Slurm

            return Slurm(templates)
        case "gridengine":
            from fsctx.coordinator.submit.gridengine import GridEngine

            return GridEngine(templates)
    raise InputError(f"--batch {name} is unknown: pass one of {', '.join(BATCH_SYSTEMS)}")


def rendered(system: BatchSystem, request: PilotRequest, settings: Mapping[str, str]) -> str:
    """Return exactly what would be submitted.

    Raises:
        InputError: the request or a setting cannot be used.
    """
    if request.n < 1:
        raise InputError(f"-n {request.n}: how many pilots to start must be at least 1")
    if request.n > MOST_PILOTS:
        raise InputError(f"-n {request.n}: at most {MOST_PILOTS:,} pilots make one submission: submit several times")
    return system.render(request, settings)


def left_out(text: str) -> Sequence[str]:
    """Return what a rendered text says that this batch system is too old for."""
    return [line.removeprefix(LEFT_OUT) for line in text.splitlines() if line.startswith(LEFT_OUT)]


def submit(
    store: Store, system: BatchSystem, request: PilotRequest, settings: Mapping[str, str], *, created: str
) -> Submission:
    """Start pilots and record them. The record stands before the first one starts.

    Raises:
        InputError: the request or a setting cannot be used, or the batch system refuses it; nothing was started.
        PilotsFailed: some did not start; those that did are recorded and work.
    """
    text = rendered(system, request, settings)
    submission = Submission(
        name=request.name,
        batch=system.name,
        wanted=request.n,
        since_order=request.since_order,
        text=text,
        version=__version__,
        created=created,
        reached=system.reached,
        versions=dict(system.versions),
    )
    write_submission(store, submission)
    try:
        pilots = tuple(system.submit(store, request, submission.text))
    except PilotsFailed as error:
        write_submission(store, dataclasses.replace(submission, pilots=error.started))
        raise
    except Unreachable:
        raise  # perhaps it was heard all the same: the record stays
    except InputError:
        forget_submission(store, request.name)
        raise
    submission = dataclasses.replace(submission, pilots=pilots)
    write_submission(store, submission)
    return submission
