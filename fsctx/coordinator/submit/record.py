"""The record of a submission in the run: what was started, with which text, after which order."""

from dataclasses import dataclass, field

from fsctx.errors import Damaged, InputError, Missing
from fsctx.protocol import codec, names
from fsctx.protocol.processes import Process
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """One started pilot, or the `count` pilots of one batch job; for a local one also its process and log."""

    id: str
    """What the batch system calls it: a process, a cluster, a job, a job array."""
    count: int = 1
    process: Process | None = None
    log: str | None = None
    """Name of the log in the run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """submissions/<name>.json. Written before the first pilot starts, and again when all have started."""

    name: str
    batch: str
    wanted: int
    """How many pilots were asked for."""
    since_order: int
    """The last standing order at that time: its agents obey higher ones only."""
    text: str
    """What was submitted, exactly."""
    version: str
    created: str
    """UTC, ISO 8601; for people, never compared."""
    reached: str = ""
    """How the batch system was reached, and why that way."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the batch system and what speaks to it."""
    pilots: tuple[Pilot, ...] = ()


def write_submission(store: Store, submission: Submission) -> None:
    """Write or rewrite the record of one submission."""
    store.make_folder(names.SUBMISSIONS)
    store.replace(names.submission(submission.name), codec.encode_pretty(submission))


def read_submission(store: Store, name: str) -> Submission | None:
    """Read the record of a submission; None where it is missing or cannot be read."""
    record = names.submission(name)
    try:
        return codec.decode(store.read(record), Submission, where=record)
    except (Missing, Damaged, InputError):
        return None


def read_submissions(store: Store) -> list[Submission]:
    """Read the records of all submissions that can be read."""
    listed = (name.removesuffix(".json") for name in store.list(names.SUBMISSIONS) if name.endswith(".json"))
    return [found for name in sorted(listed) if (found := read_submission(store, name)) is not None]


def forget_submission(store: Store, name: str) -> None:
    """Remove the record of a submission of which nothing was started."""
    store.remove(names.submission(name))
