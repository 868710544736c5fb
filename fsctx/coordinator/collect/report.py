"""The report: one HTML page that needs nothing else, for a browser, a phone or paper."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from fsctx.coordinator.collect.collect import Summary
from fsctx.coordinator.collect.metrics import NONE, Maker, TaskMetrics
from fsctx.coordinator.collect.writers import check_place, replacing
from fsctx.errors import InputError
from fsctx.protocol.agents import Ledger, list_agents, read_session
from fsctx.protocol.manifest import Context, Manifest, read_context, read_manifest
from fsctx.store import Store

ENDINGS = (".html", ".htm")
TEMPLATE = "report.html.j2"

CELL_WIDTH, CELL_HEIGHT = 112, 44
MARGIN_LEFT, MARGIN_TOP = 150, 34
"""Of a heat map, in SVG units; labels stand in the margins."""

DARK_SHARE = 0.55
"""Cells with a larger share of their row are dark: their text is light."""

MAX_FAILURES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a heat map."""

    x: int
    y: int
    count: int
    share: float
    """Of the rows with this gold label."""
    gold: str
    verdict: str

    @property
    def is_dark(self) -> bool:
        """Whether its text must be light."""
        return self.share > DARK_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A task's confusion matrix as drawn."""

    task: TaskMetrics
    width: int
    height: int
    columns: tuple[tuple[int, str], ...]
    """Middle of a column, and its verdict."""
    lines: tuple[tuple[int, str], ...]
    """Middle of a line, and its gold label."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """An agent: what it made that counts, and where its time went."""

    maker: Maker
    ledger: Ledger | None


def check_report(path: Path) -> None:
    """Check before any work that a report can be written to `path`.

    Raises:
        InputError: another ending, no such folder, or no permission.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"--report {path} ends in {path.suffix!r}: pass a name that ends in {ENDINGS[0]}")
    check_place(path)


def write_report(path: Path, store: Store, summary: Summary) -> None:
    """Write the page; whole, or not at all (see `replacing`)."""
    manifest = read_manifest(store)
    digests = dict.fromkeys(task.context for task in manifest.tasks)
    contexts = [read_context(store, digest) for digest in digests]
    page = render(summary, manifest, contexts, workers(store, summary.makers))
    with replacing(path) as file:
        file.write(page.encode())


def render(summary: Summary, manifest: Manifest, contexts: Sequence[Context], workers: Sequence[Worker]) -> str:
    """Return the page's text."""
    page = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(count=lambda n: f"{n:,}", percent=lambda share: f"{share:.1%}", size=_size, time=_time)
    return environment.from_string(page).render(
        summary=summary,
        manifest=manifest,
        contexts=contexts,
        ranked=ranked(summary.tasks),
        maps=[heat_map(task) for task in summary.tasks if task.n_labelled],
        map_left=MARGIN_LEFT,
        cell=(CELL_WIDTH, CELL_HEIGHT),
        devices=by_device(workers),
        workers=workers,
        n_agents=len({worker.maker.agent for worker in workers}),
        failures=summary.failures[:MAX_FAILURES],
    )


def ranked(tasks: Iterable[TaskMetrics]) -> list[TaskMetrics]:
    """Return tasks by accuracy, best first; those without one last."""
    return sorted(tasks, key=lambda task: -1.0 if task.accuracy is None else task.accuracy, reverse=True)


def heat_map(task: TaskMetrics) -> HeatMap:
    """Lay out a task's confusion matrix; the column for rows without a verdict stands only where there are some."""
    verdicts = [*task.confusion, *[NONE] * any(row[NONE] for row in task.confusion.values())]
    cells = [
        Cell(
            x=MARGIN_LEFT + column * CELL_WIDTH,
            y=MARGIN_TOP + line * CELL_HEIGHT,
            count=row[verdict],
            share=row[verdict] / max(1, sum(row.values())),
            gold=gold,
            verdict=verdict,
        )
        for line, (gold, row) in enumerate(task.confusion.items())
        for column, verdict in enumerate(verdicts)
    ]
    return HeatMap(
        task=task,
        width=MARGIN_LEFT + len(verdicts) * CELL_WIDTH,
        height=MARGIN_TOP + len(task.confusion) * CELL_HEIGHT,
        columns=tuple((MARGIN_LEFT + i * CELL_WIDTH + CELL_WIDTH // 2, name) for i, name in enumerate(verdicts)),
        lines=tuple((MARGIN_TOP + i * CELL_HEIGHT + CELL_HEIGHT // 2, name) for i, name in enumerate(task.confusion)),
        cells=tuple(cells),
    )


def workers(store: Store, makers: Iterable[Maker]) -> list[Worker]:
    """Return agents by rows, most first: those that made rows, and those that announced themselves and made none."""
    made = list(makers)
    sessions = {agent: read_session(store, agent) for agent in {*list_agents(store), *(maker.agent for maker in made)}}
    idle = [
        Maker(agent=agent, host=s.host, device=s.device, engine="", rows=0, input_tokens=0, output_tokens=0)
        for agent, s in sorted(sessions.items())
        if s is not None and agent not in {maker.agent for maker in made}
    ]
    ledgers = {agent: session.ledger for agent, session in sessions.items() if session is not None}
    everyone = sorted(made, key=lambda maker: -maker.rows) + idle
    return [Worker(maker=maker, ledger=ledgers.get(maker.agent)) for maker in everyone]


def by_device(workers: Iterable[Worker]) -> list[tuple[str, int, int, float]]:
    """Return device, its agents, rows, and rows per second of inference, most rows first."""
    found: dict[str, list[Any]] = {}
    for worker in workers:
        entry = found.setdefault(worker.maker.device or "unknown", [set(), 0, 0.0])
        entry[0].add(worker.maker.agent)
        entry[1] += worker.maker.rows
        entry[2] += worker.ledger.infer_s if worker.ledger else 0.0
    lines = [
        (device, len(agents), rows, rows / busy if busy else 0.0) for device, (agents, rows, busy) in found.items()
    ]
    return sorted(lines, key=lambda line: -line[2])


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"
