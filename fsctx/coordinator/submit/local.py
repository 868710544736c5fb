"""Pilots in the background of this host: processes of their own sessions, which outlive the terminal."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsctx.coordinator.submit.base import PilotRequest, Seen, facts_of
from fsctx.coordinator.submit.errors import PilotsFailed
from fsctx.coordinator.submit.record import Pilot
from fsctx.coordinator.submit.texts import Templates
from fsctx.protocol import names, processes
from fsctx.protocol.processes import Process
from fsctx.store import Store

_TEMPLATE = "local.sh.j2"


class Local:
    """Starts each pilot as `sh -c TEXT`; the text's last command replaces the shell, so signals reach the agent."""

    name = "local"
    reached = ""
    versions: Mapping[str, str] = {}

    def __init__(self, templates: Templates = Templates()) -> None:  # noqa: B008 - immutable
        self._templates = templates

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """See `BatchSystem.render`."""
        facts = {**facts_of(request), "cores_per_pilot": max(1, request.cores // request.n)}
        return self._templates.render(_TEMPLATE, facts, settings)

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """See `BatchSystem.objections`."""
        return ()

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """See `BatchSystem.submit`."""
        store.make_folder(names.LOGS)
        started: list[Pilot] = []
        for number in range(request.n):
            log = names.log(f"{request.name}-{number}")
            try:
                started.append(_start(store, text, log))
            except OSError as error:
                raise PilotsFailed(f"pilot {number + 1} of {request.n} did not start: {error}", started) from None
        return started

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """See `BatchSystem.query`."""
        return [_seen(pilot.process) for pilot in pilots]

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """See `BatchSystem.remove`; nothing waits here."""
        return 0

    def terminate(self, pilots: Sequence[Pilot]) -> None:
        """Tell pilots of this host to save and leave (SIGTERM); those that are gone already do not matter."""
        for pilot in pilots:
            if pilot.process is not None and _seen(pilot.process).running:
                _terminate(pilot.process.pid)


def _start(store: Store, text: str, log: str) -> Pilot:
    pid = os.posix_spawn(
        "/bin/sh", ["sh", "-c", text], os.environ, file_actions=_streams(store.root / log), setsid=True
    )
    process = Process(
        host=processes.host_name(),
        boot_id=processes.boot_id(),
        pid=pid,
        started_ticks=processes.started_ticks(pid) or 0,
    )
    return Pilot(id=str(pid), process=process, log=log)


def _streams(log: Path) -> list[tuple[Any, ...]]:
    """Return what makes a new process read nothing and append what it says to a log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o666),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def _seen(process: Process | None) -> Seen:
    """Tell what is known of a process; one of another host may be anything."""
    if process is None or (process.host, process.boot_id) != (processes.host_name(), processes.boot_id()):
        return Seen(unknown=1)
    return Seen(gone=1) if processes.is_dead(process) else Seen(running=1)


def _terminate(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
