"""Which logs a run has, and following them."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsctx.coordinator.logs.entries import Entry, by_time, event_entry
from fsctx.coordinator.logs.tail import Tail
from fsctx.errors import InputError
from fsctx.protocol import agents, names
from fsctx.protocol.manifest import read_manifest
from fsctx.store import Store

_SHOWN_NAMES = 8


def pilot_logs(store: Store) -> list[str]:
    """Return the names, within the folder of logs, of what the run's pilots printed."""
    found = []
    for name in sorted(store.list(names.LOGS)):
        within = sorted(store.list(f"{names.LOGS}/{name}"))  # a batch system's pilots have a folder of each submission
        found += [f"{name}/{file}" for file in within] if within else [name]
    return found


@dataclass(slots=True, kw_only=True)
class Followed:
    """The logs of one agent, of one pilot, or the events of all agents, those that come later too."""

    store: Store
    name: str | None
    is_log: bool
    tails: dict[str, Tail]

    def read_on(self) -> list[Entry]:
        """Return what was added since the last look."""
        if self.name is None:
            self._meet(agents.list_agents(self.store))
        return by_time(entry for source, tail in self.tails.items() for entry in self._entries(source, tail.read_on()))

    def rest(self) -> list[Entry]:
        """Return what has no end of line yet, where it is somebody's words; half an event is nobody's."""
        tails = self.tails.items() if self.is_log else ()
        return [entry for source, tail in tails for entry in self._entries(source, tail.rest())]

    def _entries(self, source: str, lines: Sequence[str]) -> Iterator[Entry]:
        for line in lines:
            yield Entry(source=source, text=line) if self.is_log else event_entry(source, line)

    def _meet(self, found: Sequence[str]) -> None:
        for agent in found:
            self.tails.setdefault(agent, Tail(store=self.store, name=names.events(agent)))


def follow(store: Store, name: str | None) -> Followed:
    """Begin to read the events of an agent, or of all, or what a pilot printed.

    Raises:
        InputError: the folder is no run, or has neither an agent nor a log of that name.
        Damaged: run.json cannot be read.
    """
    read_manifest(store)
    if name is None:
        return Followed(store=store, name=None, is_log=False, tails={})
    known = agents.list_agents(store)
    if name in known:
        tail = Tail(store=store, name=names.events(name))
        return Followed(store=store, name=name, is_log=False, tails={name: tail})
    logs = pilot_logs(store)
    if name in logs:
        tail = Tail(store=store, name=f"{names.LOGS}/{name}")
        return Followed(store=store, name=name, is_log=True, tails={name: tail})
    raise InputError(_unknown(store, name, known, logs))


def _unknown(store: Store, name: str, known: Sequence[str], logs: Sequence[str]) -> str:
    run = shlex.quote(str(store.root))
    if not known and not logs:
        return f"{store.root} has no agent {name}, nor any other yet; start one: fsctx submit {run} --batch local -n 1"
    there = "; ".join(f"{what}: {_some(found)}" for what, found in (("agents", known), ("logs", logs)) if found)
    return f"{store.root} has no agent and no log {name}; name one of these, or none: {there}"


def _some(found: Sequence[str]) -> str:
    more = f" and {len(found) - _SHOWN_NAMES} more" if len(found) > _SHOWN_NAMES else ""
    return ", ".join(found[:_SHOWN_NAMES]) + more
