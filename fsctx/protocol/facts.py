"""What `fsctx doctor` found of a filesystem, left for plans and agents as one record in the folder looked at."""

from dataclasses import dataclass

from fsctx.errors import Damaged, StoreError
from fsctx.protocol import codec, names
from fsctx.store import PublishForm, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The content of fsctx-doctor.json. Holds for the folder, those below it, and every host that mounts it alike."""

    date: str
    """UTC, ISO 8601; for people, never compared."""
    version: str
    host: str
    peer: str | None
    """The second host; None where one host looked alone."""
    kind: str
    """Type of the filesystem."""
    is_safe: bool
    why: tuple[str, ...] = ()
    """What makes it unsafe, or what to mind."""
    has_symlinks: bool
    publish: PublishForm
    ttl_s: float


def write_facts(store: Store, facts: Facts) -> None:
    """Leave facts in a folder, in place of those that stand there."""
    store.replace(names.DOCTOR, codec.encode_pretty(facts))


def read_facts(store: Store) -> Facts | None:
    """Read the facts of a folder; None where none stand, or none that can be read.

    Raises:
        InputError: a newer fsctx wrote them.
    """
    try:
        return codec.decode(store.read(names.DOCTOR), Facts, where=f"{store.root}/{names.DOCTOR}")
    except (StoreError, Damaged):
        return None
