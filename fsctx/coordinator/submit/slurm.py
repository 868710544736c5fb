"""Slurm as a batch system: one job array is one record."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from fsctx.coordinator.submit import commands
from fsctx.coordinator.submit.base import PilotRequest, Seen, facts_of
from fsctx.coordinator.submit.commands import Call, Refused
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.record import Pilot
from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.store import Store

_TEMPLATE = "slurm.sh.j2"

_QUEUED = {"PENDING", "REQUEUED", "REQUEUE_FED", "CONFIGURING"}
_HELD = {"SPECIAL_EXIT", "REQUEUE_HOLD"}
_HELD_REASONS = re.compile(r"Held|launch failed requeued held|DependencyNeverSatisfied|BadConstraints")

_WORDS = {
    "BeginTime": "requeued, and Slurm lets two minutes pass",
    "Priority": "others are before them",
    "Resources": "they are next, when something is free",
    "JobArrayTaskLimit": "no more at once, as --set at_once says",
    "PartitionTimeLimit": "they ask for more time than the partition gives: submit with a shorter --set time",
    "ReqNodeNotAvail": "the nodes that could take them are down or reserved",
    "BadConstraints": "no node has what they ask for: check --set constraint and gres",
    "JobHeldUser": "you hold them: scontrol release {job}",
    "JobHeldAdmin": "an administrator holds them: ask there",
    "launch failed requeued held": "they could not be started; then: scontrol release {job}",
}
"""Reasons of squeue in words (Slurm manual, job reason codes)."""


class Slurm:
    """See `BatchSystem`."""

    name = "slurm"
    reached = ""

    def __init__(self, templates: Templates, *, call: Call = commands.call) -> None:
        self._templates = templates
        self._call = call

    @property
    def versions(self) -> Mapping[str, str]:
        """See `BatchSystem.versions`."""
        try:
            return {"slurm": self._call(["sbatch", "--version"], "").split()[-1]}
        except (InputError, IndexError):
            return {}

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """See `BatchSystem.render`."""
        return self._templates.render(_TEMPLATE, facts_of(request), settings)

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """See `BatchSystem.objections`; Slurm itself refuses what no node can give."""
        return ()

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """See `BatchSystem.submit`."""
        store.make_folder(names.LOGS)
        store.make_folder(names.pilot_logs(request.name))
        try:
            printed = self._call(["sbatch", "--parsable"], text)
        except Refused as error:
            raise InputError(f"Slurm refused the pilots: {error}: nothing was queued; see --dry-run") from None
        job = printed.strip().splitlines()[-1].partition(";")[0]  # JOB;CLUSTER in a federation
        return [Pilot(id=job, count=request.n, log=names.pilot_logs(request.name))]

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """See `BatchSystem.query`. Jobs are asked for by their user: squeue fails over numbers that it forgot."""
        try:
            printed = self._call(["squeue", "--me", "--noheader", "--array", "--format=%F|%T|%r"], "")
        except Refused as error:
            raise Unreachable(f"Slurm does not answer ({error}): try again later") from None
        lines = [line.strip().split("|", 2) for line in printed.splitlines() if line.count("|") >= 2]
        return [_seen(pilot, [(state, why) for job, state, why in lines if job == pilot.id]) for pilot in pilots]

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """See `BatchSystem.remove`."""
        waiting = [(p.id, seen.queued + seen.held) for p, seen in zip(pilots, self.query(pilots), strict=True)]
        jobs = [job for job, n in waiting if n]
        if jobs:
            commands.attempt(["scancel", "--state=PENDING", *jobs], call=self._call)
        return sum(n for _, n in waiting)


def _seen(pilot: Pilot, lines: Sequence[tuple[str, str]]) -> Seen:
    held = [why for state, why in lines if state in _HELD or (state == "PENDING" and _HELD_REASONS.search(why))]
    queued = [why for state, why in lines if state in _QUEUED and not _HELD_REASONS.search(why)]
    running = len(lines) - len(held) - len(queued)
    notes = [*_notes(held, "on hold", pilot.id), *([] if running else _notes(queued, "waiting", pilot.id))]
    return Seen(
        queued=len(queued),
        running=running,
        held=len(held),
        gone=max(0, pilot.count - len(lines)),
        notes=tuple(notes),
    )


def _notes(reasons: Sequence[str], how: str, job: str) -> list[str]:
    return [
        f"{n} {how}: {why}" + (f" ({_WORDS[why].format(job=job)})" if why in _WORDS else "")
        for why, n in Counter(reasons).most_common()
        if why != "None"
    ]
