"""What `collect` says to people."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fsctx.coordinator.collect.collect import Summary
from fsctx.coordinator.collect.metrics import NONE, TaskMetrics
from fsctx.coordinator.collect.problems import Problem
from fsctx.coordinator.collect.standing import first_by_f1, most_frequent, standings
from fsctx.coordinator.printing import printable
from fsctx.coordinator.sweeps import sweep_lines
from fsctx.protocol.verdicts import Status

_WORDS: dict[str, str] = {Status.ERROR: "Error", Status.TOO_LONG: "Too long"}

PLAIN_WIDTH = 200
"""Where there is no terminal, lines are not cut to fit one."""

MAX_DETAILED = 8
MAX_FAILURES = 10
MAX_PROBLEMS = 5
"""So many tasks are shown in detail, so many failed units and kinds of rows that are not ok with their reason."""

MAX_LABELS = 12
"""Of more labels the matrix is left out: no terminal is so wide."""


def show(summary: Summary, console: Console) -> None:
    """Print what was collected: a table of tasks, a confusion matrix for each, failures, counts."""
    console.print(_tasks(summary.tasks, console))
    for task in summary.tasks[:MAX_DETAILED]:
        console.print()
        title = f"{task.model}, {task.template}: "
        if not task.n_labelled:
            counts = ", ".join(f"{verdict} {rows:,}" for verdict, rows in task.verdicts.items() if rows)
            console.print(_line(f"{title}{counts or 'no rows'}"), soft_wrap=True)
        elif len(task.labels) > MAX_LABELS:
            said = f"how each of {len(task.labels)} labels fares: --json or --report"
            console.print(_line(title + said), soft_wrap=True)
        else:
            console.print(_line(f"{title}rows by gold label (down) and verdict (across)"), soft_wrap=True)
            console.print(_confusion(task, console))
    for line in _closing(summary):
        console.print(_line(line), soft_wrap=True)


def console_for_output() -> Console:
    """Return a console on stdout that leaves lines whole where it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH, color_system=None)


def _line(text: str) -> Text:
    """Return a line in which nothing is markup, and nothing moves the cursor."""
    return Text(printable(text))


def _tasks(tasks: tuple[TaskMetrics, ...], console: Console) -> Table:
    table = _table(console)
    for name in ("model", "template"):
        table.add_column(name)
    for name in ("accuracy", "95 % interval", "macro-F1", "labelled", "rows", "errors", "too long"):
        table.add_column(name, justify="right")
    for task in tasks:
        names = (_line(task.model), _line(task.template))
        counts = (task.n_labelled, task.rows, task.errors, task.too_long)
        table.add_row(*names, *_scores(task), *(f"{count:,}" for count in counts))
    return table


def _scores(task: TaskMetrics) -> tuple[str, str, str]:
    if task.accuracy is None or task.ci95 is None or task.macro_f1 is None:
        return "-", "-", "-"
    low, high = task.ci95
    return f"{task.accuracy:.1%}", f"{low:.1%} to {high:.1%}", f"{task.macro_f1:.3f}"


def _confusion(task: TaskMetrics, console: Console) -> Table:
    table = _table(console)
    table.add_column("")
    verdicts = [*task.confusion, *[NONE] * any(row[NONE] for row in task.confusion.values())]
    for name in (*map(_line, verdicts), *map(Text, ("precision", "recall", "F1"))):
        table.add_column(name, justify="right")
    for label in task.labels:
        counts = (f"{task.confusion[label.label][verdict]:,}" for verdict in verdicts)
        table.add_row(_line(label.label), *counts, f"{label.precision:.3f}", f"{label.recall:.3f}", f"{label.f1:.3f}")
    return table


def _ranking(summary: Summary) -> Iterator[str]:
    """Say which task is best, by what, and what is no achievement."""
    if summary.comparisons:
        yield _best(summary)
    other = first_by_f1(summary)
    if other is not None:
        yield f"By macro-F1, which counts all labels alike, {other.model}, {other.template} comes first."
    usual = most_frequent(summary.tasks[summary.ranking[0]]) if summary.ranking else None
    if usual is not None:
        yield f"Always saying {usual[0]} would be right in {usual[1]:.1%} of the labelled rows."


def _best(summary: Summary) -> str:
    """Say which task is best and how many may be as good."""
    best, *others = (standing for standing in standings(summary) if standing.rank)
    compared = [standing.versus_best for standing in others if standing.versus_best]
    worse = sum(pair.is_real for pair in compared)
    return (
        f"Best by accuracy: {best.task.model}, {best.task.template}; "
        f"{worse:,} of {len(others):,} others are worse for real, "
        f"{len(compared) - worse:,} may be as good (McNemar's test, corrected by Holm)."
    )


def _table(console: Console) -> Table:
    return Table() if console.is_terminal else Table(box=None, pad_edge=False)


def _closing(summary: Summary) -> Iterator[str]:
    yield ""
    yield from _ranking(summary)
    if len(summary.tasks) > MAX_DETAILED:
        yield f"Details of {len(summary.tasks) - MAX_DETAILED} more tasks: --json or --report."
    for failure in summary.failures[:MAX_FAILURES]:
        yield f"Failed: unit {failure.unit}, {failure.rows:,} rows: {failure.reason}"
    if len(summary.failures) > MAX_FAILURES:
        yield f"Failed: {len(summary.failures) - MAX_FAILURES} more units; --json lists all of them."
    yield from _problems(summary.problems)
    if summary.sweep is not None:
        yield from sweep_lines(summary.sweep)
    yield (
        f"{summary.rows:,} rows, each once: {summary.ok:,} ok, {summary.errors:,} errors "
        f"({summary.too_long:,} too long); {summary.missing:,} missing, {summary.duplicates:,} duplicates."
    )
    if summary.output is None:
        yield "No rows were written: pass -o verdicts.parquet (or .jsonl, .csv) to keep them."
    else:
        yield f"Written to {summary.output}"


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    """Say why rows are not ok."""
    for one in problems[:MAX_PROBLEMS]:
        ids = ", ".join(map(str, one.ids))
        rows = f"{one.rows:,} rows of {one.model}, {one.template}"
        yield f"{_WORDS[one.status]}: {rows}: {one.reason} (first: {ids})"
    if len(problems) > MAX_PROBLEMS:
        yield f"Not ok for {len(problems) - MAX_PROBLEMS:,} more reasons; --json lists them."
