"""HTCondor as a batch system: one cluster of jobs is one record."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsctx.coordinator.submit.base import PilotRequest, Seen, facts_of
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.htcondor import words
from fsctx.coordinator.submit.htcondor.access import NEWEST, NO_MORE, Access, Ad
from fsctx.coordinator.submit.record import Pilot
from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.store import Store, mounts

_TEMPLATE = "htcondor.sub.j2"

IDLE, RUNNING, HELD = 1, 2, 5
_LEAVING = (3, 4)
"""JobStatus of removed and completed jobs that are still listed; others (transferring, suspended) count as running."""


class HTCondor:
    """See `BatchSystem`. Without access it can only render, for the newest HTCondor there is."""

    name = "htcondor"

    def __init__(self, access: Access | None, reached: str, templates: Templates) -> None:
        self.reached = reached if access else f"no access point, so for the newest HTCondor: {reached}"
        self._why_not = reached
        self._access = access
        self._templates = templates

    @property
    def versions(self) -> Mapping[str, str]:
        """See `BatchSystem.versions`."""
        return {} if self._access is None else self._access.versions

    def render(self, request: PilotRequest, settings: Mapping[str, str]) -> str:
        """See `BatchSystem.render`."""
        logs = request.run / names.pilot_logs(request.name)
        facts = {
            **facts_of(request),
            "event_log": str(self._event_log(logs, request.name)),
            "condor": NEWEST if self._access is None else self._access.version,
            "domain": self._setting("FILESYSTEM_DOMAIN") or "",
        }
        return self._templates.render(_TEMPLATE, facts, settings)

    def objections(self, request: PilotRequest, settings: Mapping[str, str]) -> Sequence[str]:
        """See `BatchSystem.objections`."""
        access = self._reached()
        machines = access.machines()
        found = []
        domain = self._setting("FILESYSTEM_DOMAIN")
        if "shared_where" not in settings and domain is not None and domain not in machines.domains:
            found.append(words.not_mounted(domain, machines))
        asked = settings.get("gpu_memory_mb", str(request.needs.gpu_memory_mb))
        if not asked.isdecimal():
            raise InputError(f"--set gpu_memory_mb={asked}: must be a number of MiB")
        asked_mb = int(asked)
        wants_gpu = request.on_gpu and settings.get("gpus", "1") != "0"
        if wants_gpu and (asked_mb > machines.largest_gpu_mb or not machines.largest_gpu_mb):
            found.append(words.too_large(asked_mb, machines))
        return found

    def submit(self, store: Store, request: PilotRequest, text: str) -> Sequence[Pilot]:
        """See `BatchSystem.submit`."""
        access = self._reached()
        store.make_folder(names.LOGS)
        store.make_folder(names.pilot_logs(request.name))
        cluster = access.submit(text)
        return [Pilot(id=str(cluster), count=request.n, log=names.pilot_logs(request.name))]

    def query(self, pilots: Sequence[Pilot]) -> Sequence[Seen]:
        """See `BatchSystem.query`."""
        access = self._reached()
        ads = access.jobs([int(pilot.id) for pilot in pilots])
        waits = any(ad.get("JobStatus") == IDLE and "GPUsMinMemory" in ad for ad in ads)
        machines = access.machines() if waits else None
        found = []
        for pilot in pilots:
            own = [ad for ad in ads if ad.get("ClusterId") == int(pilot.id)]
            found.append(dataclasses.replace(_count(own, pilot.count), notes=words.notes(own, machines)))
        return found

    def remove(self, pilots: Sequence[Pilot]) -> int:
        """See `BatchSystem.remove`."""
        waiting = sum(seen.queued + seen.held for seen in self.query(pilots))
        if waiting:
            self._reached().remove_idle([int(pilot.id) for pilot in pilots])
        return waiting

    def _reached(self) -> Access:
        if self._access is None:
            raise Unreachable(self._why_not)
        return self._access

    def _setting(self, name: str) -> str | None:
        """Return what the configuration says; None where it says nothing, or cannot be asked."""
        return None if self._access is None else self._access.setting(name)

    def _event_log(self, logs: Path, name: str) -> Path:
        """Return where HTCondor's own log goes: not to a network filesystem where the site forbids it."""
        forbids = (self._setting("LOG_ON_NFS_IS_ERROR") or "").lower() == "true"
        if forbids and not mounts.mount_of(logs, mounts.mounts()).is_local:
            return Path("/tmp") / f"fsctx-{name}.events"  # noqa: S108 - HTCondor writes it as the user
        return logs / "events"


def _count(ads: Sequence[Ad], n: int) -> Seen:
    """Count a cluster's jobs; those that it has still to make are queued, those that are in no list are gone."""
    states = [ad.get("JobStatus") for ad in ads if "ProcId" in ad]
    unmade = sum(_unmade(ad) for ad in ads if "ProcId" not in ad)
    queued = states.count(IDLE) + unmade
    held = states.count(HELD)
    running = sum(state not in (IDLE, HELD, *_LEAVING) for state in states)
    return Seen(queued=queued, running=running, held=held, gone=max(0, n - queued - running - held))


def _unmade(cluster: Ad) -> int:
    """Return how many jobs a cluster has still to put into the queue."""
    total, following = cluster.get("TotalSubmitProcs"), cluster.get("JobMaterializeNextProcId")
    if total is None or following is None or cluster.get("JobMaterializePaused") == NO_MORE:
        return 0
    return max(0, int(total) - int(following))


def open_htcondor(templates: Templates) -> HTCondor:
    """Reach HTCondor: by its Python bindings where they can, else by its tools, else not at all."""
    from fsctx.coordinator.submit.htcondor.tools import Tools

    configuration = os.environ.get("CONDOR_CONFIG", "")  # or a command that ends with |, or ONLY_ENV
    if configuration.startswith("/") and not configuration.endswith("|") and not os.path.exists(configuration):
        return HTCondor(None, f"CONDOR_CONFIG is {configuration}, which is not there: set or unset it", templates)
    try:
        from fsctx.coordinator.submit.htcondor.bindings import Bindings
    except ImportError:
        why_not = "the Python package htcondor is not installed"
    else:
        try:
            bindings = Bindings()
        except Unreachable as error:
            why_not = f"by the Python bindings {error}"
        else:
            return HTCondor(bindings, bindings.how, templates)
    try:
        tools = Tools()
    except Unreachable as error:
        return HTCondor(None, f"{error} ({why_not})", templates)
    return HTCondor(tools, f"{tools.how} ({why_not})", templates)
