"""The page: what is on it, and its text."""

import base64
import datetime
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from fsctx.coordinator.collect.collect import Request, Summary, collect
from fsctx.coordinator.collect.standing import first_by_f1, most_confused, most_frequent, standings
from fsctx.coordinator.collect.writers import check_place, replacing
from fsctx.coordinator.progress import Status, goodput
from fsctx.coordinator.report.drawing import HEIGHT, WIDTH, reliability, steps, timeline
from fsctx.coordinator.report.fleet import Fleet, fleet_of
from fsctx.coordinator.report.lives import Kind, Life, life_of
from fsctx.coordinator.report.makers import by_device
from fsctx.coordinator.status import read_status
from fsctx.errors import InputError
from fsctx.protocol.histories import read_events
from fsctx.protocol.manifest import Context, Manifest, read_context, read_manifest
from fsctx.store import Store

ENDINGS = (".html", ".htm")

BEATS_PER_TTL = 6
"""Agents beat so often within a time to live, and write down at each beat what they did."""

MAX_TASKS = 100
MAX_DETAILED = 20
"""So many of the best tasks are listed, so many with their confusion and calibration."""

MAX_COMPARED = 10
"""All pairs of so many of the best tasks are listed."""

MAX_LABELS = 30
"""Of more labels nobody can read the matrix: so many pairs that were mixed up most often are listed instead."""

MAX_LISTED = 100
"""Of problems and failures."""

MAX_AGENTS = 500
"""Of agents, those that came first, and of evictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the page tells."""

    summary: Summary
    manifest: Manifest
    contexts: Sequence[Context]
    status: Status
    fleet: Fleet


def check_report(path: Path) -> None:
    """Check before any work that a report can be written to `path`.

    Raises:
        InputError: another ending, no such folder, or no permission.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"the report {path} ends in {path.suffix!r}: pass a name that ends in {ENDINGS[0]}")
    check_place(path)


def write_report(path: Path, store: Store, summary: Summary) -> None:
    """Write the page; whole, or not at all (see `replacing`)."""
    page = render(read_report(store, summary))
    with replacing(path) as file:
        file.write(page.encode())


def report_so_far(store: Store, path: Path) -> Summary:
    """Write the page of what is there, and return its statistics.

    Raises:
        InputError: no page can be written there.
    """
    check_report(path)
    summary = collect(store, Request(is_partial=True))
    write_report(path, store, summary)
    return summary


def read_report(store: Store, summary: Summary) -> Report:
    """Read what the page tells beside the verdicts' statistics."""
    manifest = read_manifest(store)
    status = read_status(store)
    lives = (_life(store, view.agent, view.ledger.start_s) for view in status.agents)
    return Report(
        summary=summary,
        manifest=manifest,
        contexts=[read_context(store, digest) for digest in dict.fromkeys(task.context for task in manifest.tasks)],
        status=status,
        fleet=fleet_of(status.agents, [life for life in lives if life], beat_s=manifest.ttl_s / BEATS_PER_TTL),
    )


def render(report: Report) -> str:
    """Return the page's text."""
    environment = _environment()
    script, style = (_part(environment, name) for name in ("page.js", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.j2").render(
        script=script,
        script_digest=digest,  # no other script runs, should one get into the page
        style=style,
        **_verdicts(report.summary),
        **_machines(report),
        summary=report.summary,
        manifest=report.manifest,
        contexts=report.contexts,
        status=report.status,
        fleet=report.fleet,
    )


def _verdicts(summary: Summary) -> dict[str, Any]:
    """Return what the page says of the verdicts."""
    ranked = list(standings(summary))
    best = {standing.position for standing in ranked[:MAX_COMPARED]}
    return {
        "standings": ranked[:MAX_TASKS],
        "first_by_f1": first_by_f1(summary),
        "most_frequent": most_frequent(summary.tasks[summary.ranking[0]]) if summary.ranking else None,
        "detailed": [standing for standing in ranked[:MAX_DETAILED] if standing.rank],
        "comparisons": [pair for pair in summary.comparisons if {pair.a, pair.b} <= best],
        "positions": {(task.model, task.template): n for n, task in enumerate(summary.tasks)},
        "problems": summary.problems[:MAX_LISTED],
        "failures": summary.failures[:MAX_LISTED],
    }


def _machines(report: Report) -> dict[str, Any]:
    """Return what the page says of the fleet."""
    fleet, makers = report.fleet, report.summary.makers
    rows: Counter[str] = Counter()
    for maker in makers:
        rows[maker.agent] += maker.rows
    return {
        "members": fleet.members[:MAX_AGENTS],
        "evictions": fleet.evictions[:MAX_AGENTS],
        "began": datetime.datetime.fromtimestamp(fleet.start_s, datetime.UTC),
        "kinds": list(Kind),
        "alive": steps(fleet.alive, fleet.length_s),
        "rows": steps(fleet.rows, fleet.length_s),
        "rows_by_agent": rows,
        "devices": by_device(makers, report.status.agents),
        "goodput": goodput(report.status.ledger),
    }


def _life(store: Store, agent: str, start_s: float) -> Life | None:
    return life_of(agent, read_events(store, agent), start_s=start_s)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda n: f"{n:,}", percent=lambda share: f"{share:.1%}", p=_p, size=_size, time=_time
    )
    environment.globals.update(timeline=timeline, reliability=reliability, width=WIDTH, height=HEIGHT)
    environment.globals.update(most_confused=most_confused, max_labels=MAX_LABELS)
    return environment


def _part(environment: jinja2.Environment, name: str) -> str:
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return source


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    return f"{minutes} min {rest_s} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
