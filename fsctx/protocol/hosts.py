"""The ledger of hosts on which agents found that they cannot work: read by whoever asks for more pilots.

A failure is a name that is created exclusively, `hosts/<host>.<k>`, so that agents of one host never overwrite each
other, and the count is exact up to `MAX_PER_HOST`. To forgive a host, remove its files.
"""

from collections import Counter
from dataclasses import dataclass

from fsctx.errors import Damaged, InputError, Missing
from fsctx.protocol import codec, names
from fsctx.store import Store

MAX_PER_HOST = 8
"""Further failures of a host are not recorded: it is known by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailure:
    """One agent's reason to leave a host."""

    host: str
    """As its batch system calls it, where one started the agent."""
    reason: str
    agent: str
    time: str
    """UTC, ISO 8601; for people, never compared."""
    system: str | None = None
    """The batch system that started the agent, and knows the host by this name."""


def record_host_failure(store: Store, failure: HostFailure) -> int:
    """Add a failure, and return how many the host has now; the content must be unique to the caller."""
    store.make_folder(names.HOSTS)
    for number in range(MAX_PER_HOST):
        if store.create(names.host_failure(failure.host, number), codec.encode(failure)):
            return number + 1
    return MAX_PER_HOST


def read_host_failures(store: Store) -> list[HostFailure]:
    """Return all failures that can be read, by host, oldest first."""
    found = []
    for name in sorted(store.list(names.HOSTS)):
        try:
            found.append(codec.decode(store.read(f"{names.HOSTS}/{name}"), HostFailure, where=name))
        except (Missing, Damaged, InputError):
            continue
    return found


def hosts_to_exclude(store: Store, system: str, *, after: int = 2) -> list[str]:
    """Return the hosts with at least so many failures under a batch system, as it calls them.

    Those of others are left out: Slurm refuses pilots that name a host which it does not know.
    """
    count = Counter(failure.host for failure in read_host_failures(store) if failure.system == system)
    return sorted(host for host, n in count.items() if n >= after)
