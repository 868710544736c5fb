"""The names of all files and folders in a run. No other module spells them.

Names are relative to the run folder and use `/`. Units are eight digits, buckets six:
a sorted listing is in the order of the numbers.
"""

import functools
import re
from dataclasses import dataclass

MANIFEST = "run.json"
PLANNING = "planning.json"
"""Marks an unfinished plan; removed once the manifest stands."""

DOCTOR = "fsctx-doctor.json"
"""What `fsctx doctor` found of the filesystem; in any folder, a run's own or one above it."""

CONTEXTS = "contexts"
TEMPLATES = "templates"
APPS = "apps"
UNITS = "units"
LEASES = "leases"
RESULTS = "results"
PARTIAL = "partial"
FAILED = "failed"
AGENTS = "agents"
PEERS = "peers"
SLOTS = "slots"
CONTROL = "control"
LOGS = "logs"
SUBMISSIONS = "submissions"
HOSTS = "hosts"
SWEEP = "sweep"

PEERS_KEY = "peers/secret"
"""The secret that agents of the run show each other; only its owner can read it."""

BUCKETED = (LEASES, RESULTS, PARTIAL, FAILED)
"""Folders that hold one folder per bucket; plan creates them."""

_KNOWN = 16_384
"""So many names are read once: who waits lists the same folders again and again."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]")
_LEASE = re.compile(r"^(\d{8})\.(\d+)$")
_RESULT = re.compile(r"^(\d{8})\.(\d+)\.parquet$")
_UNIT = re.compile(r"^(\d{8})$")
_COMPACTED = re.compile(r"^(\d{6})\.parquet$")
_SLOT = re.compile(r"^([a-z]+)-(\d+)\.(\d+)$")
_PEER = re.compile(r"^([\w-]+)\.json$")
_ORDER = re.compile(r"^(stop|drain)\.(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class LeaseId:
    """Generation `generation` of the lease on unit number `unit`."""

    unit: int
    generation: int

    def __str__(self) -> str:
        return f"{self.unit:08d}.{self.generation}"

    @property
    def next(self) -> "LeaseId":
        """The generation that supersedes this one."""
        return LeaseId(self.unit, self.generation + 1)


@dataclass(frozen=True, slots=True, order=True)
class SlotId:
    """Generation `generation` of the lease on transfer slot `number` of a source."""

    source: str
    number: int
    generation: int

    def __str__(self) -> str:
        return f"{self.source}-{self.number}.{self.generation}"

    @property
    def next(self) -> "SlotId":
        """The generation that supersedes this one."""
        return SlotId(self.source, self.number, self.generation + 1)


def pulse(token: str) -> str:
    """Return the name of the counter by which an unfinished plan shows that it is alive."""
    return f"{PLANNING}.{token}"


def context(digest: str) -> str:
    """Return the name of a context's record."""
    return f"{CONTEXTS}/{digest}.json"


def template(name: str) -> str:
    """Return the name of a template as planned."""
    return f"{TEMPLATES}/{name}.toml"


def app(sha256: str) -> str:
    """Return the name of an application's file."""
    return f"{APPS}/{sha256}.py"


def shard(number: int) -> str:
    """Return the name of a Parquet file of claims."""
    return f"{UNITS}/shard-{number:05d}.parquet"


def bucket_folder(kind: str, bucket: int) -> str:
    """Return the folder that holds a bucket's names of one kind (see `BUCKETED`)."""
    return f"{kind}/{bucket:06d}"


def lease(bucket: int, lease_id: LeaseId) -> str:
    """Return the name whose exclusive creation is the lease."""
    return f"{LEASES}/{bucket:06d}/{lease_id}"


def result_file(lease_id: LeaseId) -> str:
    """Return the plain name, within its bucket, of the verdicts computed under a lease."""
    return f"{lease_id}.parquet"


def result(bucket: int, lease_id: LeaseId) -> str:
    """Return the name of the verdicts computed under a lease."""
    return f"{RESULTS}/{bucket:06d}/{result_file(lease_id)}"


def published(bucket: int, unit: int) -> str:
    """Return the name of the symlink that makes one result file the unit's result."""
    return f"{RESULTS}/{bucket:06d}/{unit:08d}"


def compacted(bucket: int) -> str:
    """Return the name of the file that holds all verdicts of a finished bucket."""
    return f"{RESULTS}/{bucket:06d}.parquet"


def partial(bucket: int, lease_id: LeaseId) -> str:
    """Return the name of the rows saved by an interrupted holder."""
    return f"{PARTIAL}/{bucket:06d}/{lease_id}.parquet"


def merger(bucket: int) -> str:
    """Return the name that an agent creates before it merges a finished bucket."""
    return f"{PARTIAL}/{bucket:06d}/merger"


def attempt(bucket: int, lease_id: LeaseId) -> str:
    """Return the name of the record of what a careful holder tries."""
    return f"{PARTIAL}/{bucket:06d}/{lease_id}.trying"


def failed(bucket: int, unit: int) -> str:
    """Return the name of the record that a unit was given up."""
    return f"{FAILED}/{bucket:06d}/{unit:08d}.json"


def agent_folder(agent: str) -> str:
    """Return the folder of one agent, in which it alone writes."""
    return f"{AGENTS}/{agent}"


def session(agent: str) -> str:
    """Return the name of an agent's heartbeat file."""
    return f"{AGENTS}/{agent}/session"


def agent_record(agent: str) -> str:
    """Return the name of the record of what an agent is and where it runs."""
    return f"{AGENTS}/{agent}/agent.json"


def events(agent: str) -> str:
    """Return the name of an agent's event log."""
    return f"{AGENTS}/{agent}/events.jsonl"


def peer(agent: str) -> str:
    """Return the name of the record of where an agent serves its cache."""
    return f"{PEERS}/{agent}.json"


def slot(slot_id: SlotId) -> str:
    """Return the name whose exclusive creation takes a transfer slot."""
    return f"{SLOTS}/{slot_id}"


def order(kind: str, number: int) -> str:
    """Return the name of a standing order, `stop` or `drain`."""
    return f"{CONTROL}/{kind}.{number}"


def decision(rung: int) -> str:
    """Return the name that is published for what was decided when a rung of a sweep was over."""
    return f"{SWEEP}/{rung:03d}"


def decision_file(rung: int, agent: str) -> str:
    """Return the plain name of what one agent decided."""
    return f"{rung:03d}.{agent}.json"


def is_decision_file(name: str, rung: int) -> bool:
    """Whether a plain name is that of a decision about a rung."""
    return re.fullmatch(rf"{rung:03d}\.[\w-]+\.json", name) is not None


def host_failure(host: str, number: int) -> str:
    """Return the name of the record of a host's failure number `number`; the host may be called anything."""
    return f"{HOSTS}/{_NOT_IN_A_NAME.sub('-', host)[:100]}.{number}"


def log(pilot: str) -> str:
    """Return the name of a local pilot's log."""
    return f"{LOGS}/{pilot}.log"


def pilot_logs(submission: str) -> str:
    """Return the folder of the logs of a submission's pilots, where a batch system starts them."""
    return f"{LOGS}/{submission}"


def submission(name: str) -> str:
    """Return the name of the record of one submission."""
    return f"{SUBMISSIONS}/{name}.json"


def parse_lease(name: str) -> LeaseId | None:
    """Read a lease from a name in a bucket of leases; None if it is not one."""
    return _parse(_LEASE, name)


def parse_result(name: str) -> LeaseId | None:
    """Read a lease from a name of verdicts or of a partial; None if it is not one."""
    return _parse(_RESULT, name)


def parse_attempt(name: str) -> LeaseId | None:
    """Read a lease from the name of an attempt; None if it is not one."""
    return parse_lease(name.removesuffix(".trying")) if name.endswith(".trying") else None


@functools.lru_cache(maxsize=_KNOWN)
def parse_published(name: str) -> int | None:
    """Read the unit from the name of a published result; None if it is not one."""
    match = _UNIT.match(name)
    return int(match[1]) if match else None


def parse_compacted(name: str) -> int | None:
    """Read the bucket from the name of a compacted one; None if it is not one."""
    match = _COMPACTED.match(name)
    return int(match[1]) if match else None


def parse_failed(name: str) -> int | None:
    """Read the unit from the name of a failure record; None if it is not one."""
    return parse_published(name.removesuffix(".json")) if name.endswith(".json") else None


def parse_peer(name: str) -> str | None:
    """Read the agent from the name of where it serves its cache; None if it is not one."""
    match = _PEER.match(name)
    return match[1] if match else None


def parse_slot(name: str) -> SlotId | None:
    """Read a slot from the name of its lease; None if it is not one."""
    match = _SLOT.match(name)
    return SlotId(match[1], int(match[2]), int(match[3])) if match else None


def parse_order(name: str) -> tuple[str, int] | None:
    """Read kind and number from the name of a standing order; None if it is not one."""
    match = _ORDER.match(name)
    return (match[1], int(match[2])) if match else None


@functools.lru_cache(maxsize=_KNOWN)
def _parse(pattern: re.Pattern[str], name: str) -> LeaseId | None:
    match = pattern.match(name)
    return LeaseId(int(match[1]), int(match[2])) if match else None
