"""HTCondor, Slurm and Grid Engine as their adapters see them, in memory: one job after the other in one queue."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsctx.coordinator.submit.commands import Refused
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.htcondor.access import Ad, Machines
from fsctx.errors import InputError

QUEUED, RUNNING, HELD = "queued", "running", "held"


@dataclass(slots=True)
class Queue:
    """The pilots of each job, those that are gone left out."""

    jobs: dict[str, dict[int, str]] = field(default_factory=dict)
    is_reachable: bool = True
    refusal: str | None = None

    def add(self, n: int) -> str:
        job = str(len(self.jobs) + 11)
        self.jobs[job] = dict.fromkeys(range(n), QUEUED)
        return job

    def move(self, job: str, before: str, after: str | None) -> None:
        """Let one pilot of a job change its state; None: it is gone."""
        pilot = next(number for number, state in sorted(self.jobs[job].items()) if state == before)
        del self.jobs[job][pilot]
        if after is not None:
            self.jobs[job][pilot] = after

    def remove_waiting(self, jobs: Sequence[str]) -> int:
        n = 0
        for job in jobs:
            waiting = [pilot for pilot, state in self.jobs.get(job, {}).items() if state != RUNNING]
            n += len(waiting)
            for pilot in waiting:
                del self.jobs[job][pilot]
        return n


class FakeAccess:
    """An HTCondor access point; see `Access`. Clusters make their jobs late: two at a time wait."""

    how = "the fake access point"
    versions: Mapping[str, str] = {"htcondor": "23.9.6"}

    def __init__(self, queue: Queue | None = None, version: tuple[int, int, int] = (23, 9, 6)) -> None:
        self.queue = queue or Queue()
        self.version = version
        self.settings = {"FILESYSTEM_DOMAIN": "pool"}
        self.pool = Machines(n=1, domains=frozenset({"pool"}), largest_gpu_mb=40_000)
        self.jobs_extra: dict[str, Any] = {}

    def setting(self, name: str) -> str | None:
        return self.settings.get(name)

    def submit(self, text: str) -> int:
        self._answer()
        if self.queue.refusal is not None:
            raise InputError(self.queue.refusal)
        count = re.search(r"^queue (\d+)", text, re.MULTILINE)
        assert count is not None
        return int(self.queue.add(int(count[1])))

    def jobs(self, clusters: Sequence[int]) -> list[Ad]:
        self._answer()
        ads: list[Ad] = []
        for cluster in clusters:
            pilots = self.queue.jobs.get(str(cluster), {})
            if not pilots:
                continue
            waiting = sorted(number for number, state in pilots.items() if state == QUEUED)
            n = max(pilots) + 1
            following = waiting[2] if len(waiting) > 2 else n
            ads.append({"ClusterId": cluster, "TotalSubmitProcs": n, "JobMaterializeNextProcId": following})
            status = {QUEUED: 1, RUNNING: 2, HELD: 5}
            for number, state in pilots.items():
                if number < following:
                    ad = {"ClusterId": cluster, "ProcId": number, "JobStatus": status[state]}
                    ads.append(ad | self.jobs_extra)
        return ads

    def remove_idle(self, clusters: Sequence[int]) -> None:
        self._answer()
        self.queue.remove_waiting([str(cluster) for cluster in clusters])

    def machines(self) -> Machines:
        self._answer()
        return self.pool

    def _answer(self) -> None:
        if not self.queue.is_reachable:
            raise Unreachable("HTCondor does not answer")


@dataclass(slots=True)
class FakeCommands:
    """The commands of Slurm and Grid Engine, as far as they are used."""

    queue: Queue = field(default_factory=Queue)
    reason: str = "Priority"

    def __call__(self, command: Sequence[str], text: str) -> str:
        if not self.queue.is_reachable:
            raise Unreachable(f"there is no {command[0]} on this host")
        match command[0]:
            case "sbatch" | "qsub" if "-terse" in command or "--parsable" in command:
                return self._submit(command[0], text)
            case "squeue":
                states = {QUEUED: "PENDING", RUNNING: "RUNNING", HELD: "PENDING"}
                reasons = {QUEUED: self.reason, RUNNING: "None", HELD: "JobHeldUser"}
                return "".join(f"{job}|{states[state]}|{reasons[state]}\n" for job, state in self._pilots())
            case "qstat":
                letters = {QUEUED: "qw", RUNNING: "r", HELD: "Eqw"}
                lines = [
                    f"     {job} 0.5 fsctx me           {letters[s]}    11/30/2026 08:00:00 1 1"
                    for job, s in self._pilots()
                ]
                return "\n".join(["job-ID  prior name user state", "-" * 40, *lines]) if lines else ""
            case "scancel":
                self.queue.remove_waiting(command[2:])
            case "qdel":
                self._qdel(command[1], command[3] if "-t" in command else None)
        return ""

    def _submit(self, command: str, text: str) -> str:
        if self.queue.refusal is not None:
            raise Refused(f"{command}: {self.queue.refusal}")
        count = re.search(r"(?:--array=0-|-t 1-)(\d+)", text)
        assert count is not None
        n = int(count[1]) + (command == "sbatch")
        job = self.queue.add(n)
        return f"{job}\n" if command == "sbatch" else f"{job}.1-{n}:1\n"

    def _qdel(self, job: str, tasks: str | None) -> None:
        first, last = (1, 10**6) if tasks is None else map(int, tasks.split("-"))
        for pilot in [p for p in self.queue.jobs[job] if first <= p + 1 <= last]:
            del self.queue.jobs[job][pilot]

    def _pilots(self) -> list[tuple[str, str]]:
        return [(job, state) for job, pilots in self.queue.jobs.items() for state in pilots.values()]
