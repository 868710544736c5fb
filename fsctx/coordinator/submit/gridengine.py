"""Grid Engine as a batch system: one array job is one record."""

import re
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

_TEMPLATE = "gridengine.sh.j2"

_LINE = re.compile(r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s+([a-zA-Z]+)\s")
"""Job and state, as `qstat -g d` lists them: one line a task."""


class GridEngine:
    """See `BatchSystem`."""

    name = "gridengine"
    reached = ""

    def __init__(self, templates: Templates, *, call: Call = commands.call) -> None:
        self._templates = templates
        self._call = call

    @property
    def versions(self) -> Mapping[str, str]:
        """See `BatchSystem.versions`."""
        try:
            return {"gridengine": self._call(["qstat", "-help"], "").splitlines()[0].strip()}
        except (InputError, IndexError):
            return {}

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """See `BatchSystem.render`. Its lines of options know no quotes, so that paths must not need any.

        In paths of logs a colon ends a host, a comma a path, and `$` begins a variable (qsub(1), -o).
        """
        facts = facts_of(request)
        if re.search(r"[\s'\":,$]", str(facts["logs"])):
            raise InputError(
                f"{request.run}: Grid Engine takes no spaces, quotes, colons, commas or $ in paths: "
                "move the run elsewhere"
            )
        return self._templates.render(_TEMPLATE, facts, settings)

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """See `BatchSystem.objections`: what Grid Engine says to such a job if all its hosts were free."""
        try:
            self._call(["qsub", "-w", "v"], self.render(request, settings))
        except Refused as error:
            return [f"Grid Engine would not run these pilots ({error})"]
        return ()

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """See `BatchSystem.submit`."""
        store.make_folder(names.LOGS)
        store.make_folder(names.pilot_logs(request.name))
        try:
            printed = self._call(["qsub", "-terse"], text)
        except Refused as error:
            raise InputError(f"Grid Engine refused the pilots: {error}: nothing was queued; see --dry-run") from None
        job = printed.strip().splitlines()[-1].partition(".")[0]  # JOB.1-N:1 for an array
        return [Pilot(id=job, count=request.n, log=names.pilot_logs(request.name))]

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """See `BatchSystem.query`."""
        try:
            printed = self._call(["qstat", "-g", "d"], "")
        except Refused as error:
            raise Unreachable(f"Grid Engine does not answer ({error}): try again later") from None
        lines = [found.groups() for line in printed.splitlines() if (found := _LINE.match(line))]
        return [_seen(pilot, [state for job, state in lines if job == pilot.id]) for pilot in pilots]

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """See `BatchSystem.remove`. qdel knows no states: it is given the tasks that wait, by their numbers."""
        n_removed = 0
        for pilot, seen in zip(pilots, self.query(pilots), strict=True):
            waiting = seen.queued + seen.held
            if waiting and seen.running:
                commands.attempt(
                    ["qdel", pilot.id, "-t", f"{pilot.count - waiting + 1}-{pilot.count}"], call=self._call
                )
            elif waiting:
                commands.attempt(["qdel", pilot.id], call=self._call)
            n_removed += waiting
        return n_removed


def _seen(pilot: Pilot, states: Sequence[str]) -> Seen:
    """Count by state letters: E error, h hold, q queued, r running, t going to run (qstat(1))."""
    held = [state for state in states if "E" in state or "h" in state]
    queued = [state for state in states if "q" in state and state not in held]
    errors = sum("E" in state for state in held)
    notes = [
        *([f"{errors} could not be started: see qstat -j {pilot.id}; then: qmod -cj {pilot.id}"] if errors else []),
        *([f"{len(held) - errors} on hold: qrls {pilot.id}"] if len(held) > errors else []),
    ]
    return Seen(
        queued=len(queued),
        running=len(states) - len(held) - len(queued),
        held=len(held),
        gone=max(0, pilot.count - len(states)),
        notes=tuple(notes),
    )
