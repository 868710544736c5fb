"""What an agent says of itself: its record (once) and its session (at every beat)."""

import zlib
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from fsctx.errors import Damaged, Missing
from fsctx.protocol import codec, names
from fsctx.protocol.jobs import Job
from fsctx.protocol.processes import Process
from fsctx.store import Store

SESSION_BYTES = 8192
"""A session is padded to this size, so that rewriting it in place never leaves a tail."""

MAX_RELEASED = 128
"""So many of the latest released leases fit into a session."""


class AgentState(StrEnum):
    """What an agent is doing, as it says itself."""

    STARTING = "starting"
    FETCHING = "fetching"
    LOADING = "loading"
    RUNNING = "running"
    WAITING = "waiting"
    LEAVING = "leaving"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """agent.json: what an agent is and where it runs; written once."""

    agent: str
    process: Process
    started: str
    version: str
    python: str
    engine: str
    """The one that was chosen."""
    device: str
    cores: int
    """How many this agent may use: by affinity, control group and batch system."""
    memory_bytes: int
    """How much this agent may use, likewise."""
    engine_why: str = ""
    """Why that engine, in words."""
    gpu: str | None = None
    """The GPU that it was given: its UUID, else what it was called when it was assigned."""
    job: Job | None = None
    submission: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Where an agent's time and work went, in seconds and counts since its start."""

    rows_done: int = 0
    units_done: int = 0
    rows_adopted: int = 0
    rows_lost: int = 0
    """Computed, but another holder's result was published first."""
    tokens: int = 0
    loads: int = 0
    bytes_node: int = 0
    """Of models that were on the node already; the next two were brought to it."""
    bytes_peer: int = 0
    bytes_origin: int = 0
    fs_calls: int = 0
    """Calls to the shared filesystem, as `fsctx.store.counting` counts them."""
    start_s: float = 0.0
    fetch_s: float = 0.0
    load_s: float = 0.0
    infer_s: float = 0.0
    idle_s: float = 0.0
    write_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The heartbeat's content. `counter` moves at every beat, `progress` when rows are finished."""

    agent: str
    counter: int
    progress: int
    state: AgentState
    host: str = ""
    device: str = ""
    engine: str = ""
    engine_why: str = ""
    """As in the record."""
    unit: int | None = None
    context: str | None = None
    """Digest of the context that is resident on the device."""
    source: str | None = None
    """Where its files came from: `node`, `peer`, `origin`."""
    fetched_bytes: int = 0
    """Copied to the node for it."""
    ready_s: float = 0.0
    """From asking for its files to its being resident."""
    rows_per_s: float = 0.0
    fs_calls_per_s: float = 0.0
    """Of about the last minute."""
    why: str = ""
    """Why it waits or left, in words."""
    released: tuple[str, ...] = ()
    """Leases given back while living on, latest last. In state `left` all leases are released."""
    ledger: Ledger = field(default_factory=Ledger)


def first_session(record: AgentRecord) -> Session:
    """Return the session of an agent that has just announced itself."""
    return Session(
        agent=record.agent,
        counter=0,
        progress=0,
        state=AgentState.STARTING,
        host=record.process.host,
        device=record.device,
        engine=record.engine,
        engine_why=record.engine_why,
    )


def encode_session(session: Session) -> bytes:
    """Return a session's bytes: a checksum, a space, one line of JSON, padding. Always `SESSION_BYTES` long."""
    body = codec.encode(session)
    line = b"%08x " % zlib.crc32(body) + body
    if len(line) > SESSION_BYTES:
        raise ValueError(f"a session of {len(line)} bytes does not fit {SESSION_BYTES}")
    return line.ljust(SESSION_BYTES, b" ")


def decode_session(data: bytes, *, where: str) -> Session:
    """Read a session.

    Raises:
        Damaged: torn (read while it was written) or not a session. Look again later.
    """
    body = data[9:].rstrip(b" ")
    if data[:9] != b"%08x " % zlib.crc32(body):
        raise Damaged(f"{where} was read while it was being written")
    return codec.decode(body, Session, where=where)


def read_session(store: Store, agent: str) -> Session | None:
    """Read an agent's session; None where it is missing or torn."""
    name = names.session(agent)
    try:
        return decode_session(store.read(name), where=name)
    except (Missing, Damaged):
        return None


def read_agent(store: Store, agent: str) -> AgentRecord | None:
    """Read an agent's record; None where it is missing or damaged."""
    name = names.agent_record(agent)
    try:
        return codec.decode(store.read(name), AgentRecord, where=name)
    except (Missing, Damaged, msgspec.MsgspecError):
        return None


def list_agents(store: Store) -> list[str]:
    """Return the names of all agents that ever announced themselves, in order."""
    return sorted(store.list(names.AGENTS))
