"""A line of a log, as data and in words. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fsctx.coordinator.printing import printable

_HEADING = ("time", "event", "at_s")
"""Fields of an event that stand at the beginning of its line, or that people do not read."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event of an agent, or a line of what a pilot printed (`event` is empty, `text` is the line)."""

    source: str
    """The agent, or the log's name."""
    time: str = ""
    """UTC by the writer's clock: good for people, and for nothing that is decided."""
    event: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def event_entry(agent: str, line: str) -> Entry:
    """Read one line of an agent's events; what is none is kept as text, so that nothing is hidden."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return Entry(source=agent, text=line)
    if not isinstance(fields, dict) or "event" not in fields:
        return Entry(source=agent, text=line)
    return Entry(source=agent, time=str(fields.get("time", "")), event=str(fields["event"]), fields=fields)


def by_time(entries: Iterable[Entry]) -> list[Entry]:
    """Merge agents' entries by the times that they wrote, each agent's own in its order.

    Times are of many clocks: lines of two agents may stand in the wrong order. What has no time follows its forerunner.
    """
    latest: dict[str, str] = {}
    keyed = []
    for entry in entries:
        latest[entry.source] = max(entry.time, latest.get(entry.source, ""))
        keyed.append((latest[entry.source], entry))
    return [entry for _, entry in sorted(keyed, key=lambda pair: pair[0])]


def as_json(entry: Entry) -> str:
    """Return one line of JSON: an event with its agent, or a log's line."""
    if entry.event:
        return json.dumps({"agent": entry.source, **entry.fields})
    return json.dumps({"log": entry.source, "text": entry.text})


def as_text(entry: Entry, *, is_named: bool) -> str:
    """Return one readable line, its control characters escaped; with the source, where there are several."""
    source = f"{entry.source}  " if is_named else ""
    if not entry.event:
        return source + printable(entry.text)
    told = "  ".join(f"{name}={_value(value)}" for name, value in entry.fields.items() if name not in _HEADING)
    return printable(f"{entry.time}  {source}{entry.event:<10}  {told}".rstrip())


def _value(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value[:12]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
