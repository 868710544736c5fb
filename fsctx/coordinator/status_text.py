"""A status in words and tables, for people."""

import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fsctx.coordinator.pilots import PilotsView
from fsctx.coordinator.printing import printable
from fsctx.coordinator.progress import AgentView, RunState, Status, goodput
from fsctx.coordinator.sweeps import sweep_lines
from fsctx.protocol.agents import AgentState

AGENT_COLUMNS = ("agent", "device", "state", "unit", "rows/s", "model", "from", "rows", "note")

_MAX_NOTE = 60
_MAX_ROWS = 40

_ADVICE = {
    RunState.DONE: "collect the verdicts: fsctx collect {root} -o verdicts.parquet",
    RunState.INCOMPLETE: "put the failed units back: fsctx retry {root}",
    RunState.STOPPED: "go on with new agents: fsctx submit {root} --batch local -n 1",
    RunState.WAITING: "start agents: fsctx submit {root} --batch local -n 1",
}


def summary(status: Status, *, root: str) -> list[str]:
    """Return the lines that say how a run stands."""
    units, rows = status.units, status.rows
    n_rows, n_units = rows.total - rows.dropped, units.total - units.dropped
    return [
        f"run {status.run}: {status.state}",
        f"rows   {rows.done:,} of {n_rows:,} done{_share(rows.done, n_rows)}{_dropped(rows.dropped)}",
        f"units  {units.done:,} of {n_units:,} done, {units.leased:,} leased, {units.free:,} free, "
        f"{units.failed:,} failed{_dropped(units.dropped)}",
        f"speed  {status.rows_per_s:,.1f} rows/s{eta(status)}",
        *(sweep_lines(status.sweep) if status.sweep else ()),
        *_goodput(status),
        *_engines(status),
        *(f"failed unit {f.unit}: {f.reason}" for f in status.failures),
        *_pilots(status.pilots),
        *_next(status, root),
    ]


def _next(status: Status, root: str) -> list[str]:
    """Return what a person may do now; nothing where pilots wait in a queue already."""
    if status.state not in _ADVICE or (status.state == RunState.WAITING and status.pilots.n_waiting_or_running):
        return []
    return [f"next   {_ADVICE[status.state].format(root=shlex.quote(root))}"]


def _engines(status: Status) -> list[str]:
    """Return which engines the agents work with that did not leave, and why."""
    seen = Counter((agent.engine, agent.engine_why) for agent in _present(status) if agent.engine)
    return [f"engine {name}, as {why} ({n:,} agent(s))" for (name, why), n in seen.most_common()]


def _pilots(pilots: PilotsView) -> list[str]:
    lines = []
    for view in pilots.submissions:
        counts = {name: getattr(view.seen, name) for name in ("running", "queued", "held", "gone", "unknown")}
        said = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
        lines += [f"pilots {view.name} (job {view.job}): {said}", *(f"       {note}" for note in view.seen.notes)]
    return [*lines, *(f"pilots {why}" for why in pilots.unasked)]


def waiting(status: Status) -> list[str]:
    """Return the lines that say what a run waits for: units given up, pilots in queues, nobody at work."""
    failed = [f"failed unit {f.unit}: {f.reason}" for f in status.failures]
    idle = ["nobody is at work"] if status.state in (RunState.WAITING, RunState.STOPPED) else []
    return [*failed, *_pilots(status.pilots), *idle]


def agent_rows(status: Status) -> list[tuple[str, ...]]:
    """Return a table's rows: agents that did not leave, those alive first, not too many."""
    present = sorted(_present(status), key=lambda agent: not agent.is_alive)
    return [_row(agent, oddly_s=status.ttl_s / 3) for agent in present[:_MAX_ROWS]]


def others(status: Status) -> list[str]:
    """Return lines on the agents that the table does not show."""
    n_more = len(_present(status)) - _MAX_ROWS
    gone = [agent for agent in status.agents if agent.state == AgentState.LEFT]
    return [
        *([f"{n_more} more agents: see --json"] if n_more > 0 else []),
        *([f"{len(gone)} agent(s) left, the last with: {gone[-1].why or 'no reason given'}"] if gone else []),
    ]


def _present(status: Status) -> list[AgentView]:
    return [agent for agent in status.agents if agent.state != AgentState.LEFT]


def plain_table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return agents' rows under their headings, aligned by spaces."""
    lines = [AGENT_COLUMNS, *rows]
    if len(lines) == 1:
        return []
    widths = [max(len(line[i]) for line in lines) for i in range(len(AGENT_COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def eta(status: Status) -> str:
    """Return how long it takes yet at the agents' rate, to be put after that; nothing where that is not known."""
    about = "at most" if status.sweep and status.sweep.is_open else "about"
    return f", {about} {duration(status.eta_s)} left" if status.eta_s else ""


def duration(seconds: float) -> str:
    """Return a duration as people say it: `45 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _row(agent: AgentView, *, oddly_s: float) -> tuple[str, ...]:
    cells = (
        agent.agent,
        agent.device or "?",
        str(agent.state),
        "" if agent.unit is None else str(agent.unit),
        f"{agent.rows_per_s:.1f}",
        agent.model or "",
        _brought(agent),
        f"{agent.ledger.rows_done:,}",
        _note(agent, oddly_s=oddly_s),
    )
    return tuple(map(printable, cells))


def _brought(agent: AgentView) -> str:
    """Return where the resident context came from, what was copied for it, and how long it took to be ready."""
    if agent.source is None:
        return ""
    copied = f" {agent.fetched_bytes / 1e9:.2f} GB" if agent.fetched_bytes else ""
    return f"{agent.source}{copied}, {duration(agent.ready_s)}"


def _note(agent: AgentView, *, oddly_s: float) -> str:
    """Return what is odd about an agent, in one line: silence of `oddly_s` (two beats) and more, and its own reason."""
    is_silent = agent.silent_s is not None and agent.silent_s > oddly_s
    silent = f"silent for {duration(agent.silent_s or 0.0)}" if is_silent else ""
    note = ", ".join(part for part in (silent, " ".join(agent.why.split())) if part)
    return note if len(note) <= _MAX_NOTE else note[: _MAX_NOTE - 1] + "…"


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""


def _dropped(n: int) -> str:
    return f", {n:,} dropped" if n else ""


def _goodput(status: Status) -> list[str]:
    if not status.agents:
        return []
    sums = goodput(status.ledger)
    spent = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in sums["seconds"].items() if seconds >= 0.5)
    per_load = "" if sums["rows_per_load"] is None else f", {sums['rows_per_load']:,.0f} rows per load"
    return [
        f"work   {sums['loads']:,} load(s){per_load}",
        f"       {sums['rows_adopted']:,} rows adopted from others, {sums['rows_lost']:,} computed in vain",
        *([f"files  {_files(sums['bytes'])}"] if any(sums["bytes"].values()) else []),
        *([f"time   {spent}"] if spent else []),
        *([f"calls  {_calls(status, sums)}"] if sums["fs_calls"] else []),
    ]


def _files(by_source: dict[str, int]) -> str:
    said = {"node": "found on the nodes", "peer": "from peers", "origin": "from the shared filesystem"}
    return ", ".join(f"{n / 1e9:,.2f} GB {said[source]}" for source, n in by_source.items() if n)


def _calls(status: Status, sums: dict[str, Any]) -> str:
    per_unit = "" if sums["fs_calls_per_unit"] is None else f", {sums['fs_calls_per_unit']:,.1f} per unit"
    per_s = f", {status.fs_calls_per_s:,.1f}/s now" if status.fs_calls_per_s else ""
    return f"{sums['fs_calls']:,} to the filesystem{per_unit}{per_s}"
