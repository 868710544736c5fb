"""Submitting pilots to a run: render, record, start, record again."""

import dataclasses
from collections.abc import Mapping

from fsctx import __version__
from fsctx.coordinator.submit.base import BatchSystem, PilotRequest
from fsctx.coordinator.submit.errors import PilotsFailed
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import Submission, write_submission
from fsctx.errors import InputError
from fsctx.store import Store

BATCH_SYSTEMS = ("htcondor", "slurm", "gridengine", "local")


def batch_system(name: str) -> BatchSystem:
    """Return a batch system by its name.

    Raises:
        InputError: this version cannot submit to it.
    """
    if name == Local.name:
        return Local()
    raise InputError(
        f"--batch {name}: this version starts local pilots only: "
        "pass --batch local on each host, or call `fsctx agent RUN` in a job script of your own"
    )


def rendered(system: BatchSystem, request: PilotRequest, settings: Mapping[str, str]) -> str:
    """Return exactly what would be submitted.

    Raises:
        InputError: the request or a setting cannot be used.
    """
    if request.n < 1:
        raise InputError(f"-n {request.n}: how many pilots to start must be at least 1")
    return system.render(request, settings)


def submit(
    store: Store, system: BatchSystem, request: PilotRequest, settings: Mapping[str, str], *, created: str
) -> Submission:
    """Start pilots and record them. The record stands before the first one starts.

    Raises:
        InputError: the request or a setting cannot be used; nothing was started.
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
    )
    write_submission(store, submission)
    try:
        pilots = tuple(system.submit(store, request, submission.text))
    except PilotsFailed as error:
        write_submission(store, dataclasses.replace(submission, pilots=error.started))
        raise
    submission = dataclasses.replace(submission, pilots=pilots)
    write_submission(store, submission)
    return submission
