"""The latest events of the agents at work: a few bytes from the ends of a few files at each look."""

from collections.abc import Sequence
from dataclasses import replace

from fsctx.coordinator.logs.entries import as_text, by_time, event_entry
from fsctx.coordinator.logs.tail import last_lines
from fsctx.coordinator.progress import Status
from fsctx.protocol import names
from fsctx.store import Store

MAX_AGENTS = 12
"""A watcher costs the filesystem at most so many openings a look for this."""

_BYTES = 2048
_MAX_EVENTS = 6
_USUAL = ("inferred", "leased")
"""What happens all the time says nothing."""

_CLOCK = slice(len("2026-11-30T"), len("2026-11-30T12:00:00"))


def latest_events(store: Store, status: Status) -> Sequence[str]:
    """Return the latest events of some agents that live, in words, oldest first."""
    alive = [agent.agent for agent in status.agents if agent.is_alive][:MAX_AGENTS]
    entries = [
        event_entry(name, line) for name in alive for line in last_lines(store, names.events(name), n_bytes=_BYTES)
    ]
    told = [entry for entry in by_time(entries) if entry.event and entry.event not in _USUAL]
    return [as_text(replace(entry, time=entry.time[_CLOCK]), is_named=True) for entry in told[-_MAX_EVENTS:]]
