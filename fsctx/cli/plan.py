"""`fsctx plan`."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsctx.errors import InputError

if TYPE_CHECKING:
    from fsctx.coordinator.plan import PlanReport, PlanRequest, Progress


class UnitRows(click.ParamType[int | None]):
    """A number of rows, or `auto`, which is None."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """See `click.ParamType.convert`."""
        if value == "auto" or value is None:
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number of rows nor auto", param, ctx)


@click.command
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--run", required=True, type=click.Path(path_type=Path), help="Folder to make: the run.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="REF",
    help="Model folder, .gguf file or hub name; `fake` tries a cluster out without one. Repeat for a sweep. A LoRA "
    "adapter's folder is the model that it names, with it. "
    "With --app: any file or folder that the application loads, or none.",
)
@click.option("--base", metavar="REF", help="The model that LoRA adapters are for, if not the one that they name.")
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="FILE",
    help="Prompt template: a TOML file or a built-in's name, by default fever. Repeat for a sweep.",
)
@click.option("--method", type=click.Choice(["score", "generate"]), default="score", show_default=True)
@click.option("--id-column", metavar="C", help="Column with the claims' ids. Guessed; else the row number is the id.")
@click.option("--claim-column", metavar="C", help="Column with the claims. Guessed from common names.")
@click.option("--label-column", metavar="C", help="Column with the gold labels. Guessed from common names.")
@click.option("--map", "maps", multiple=True, metavar="GOLD=LABEL", help="What a gold label means. Repeatable.")
@click.option("--unit-rows", type=UnitRows(), default="auto", show_default=True, help="Claims in a unit of work.")
@click.option("--ttl", "ttl_s", type=float, metavar="S", help="Give a silent agent up after S seconds.")
@click.option("--header/--no-header", "has_header", default=None, help="Whether CSV and TSV begin with names. Guessed.")
@click.option(
    "--quoting",
    type=click.Choice(["on", "off"]),
    help='Whether " encloses cells. On in CSV; off in TSV, where a stray quote would merge rows.',
)
@click.option("--only-used-columns", "is_lean", is_flag=True, help="Store only the columns that templates use.")
@click.option("--sweep", type=click.Choice(["halving"]), help="Drop tasks that are clearly worse on growing samples.")
@click.option("--budget", type=click.IntRange(min=1), metavar="N", help="At most N inferences in the whole sweep.")
@click.option(
    "--app",
    metavar="FILE:NAME",
    help="Let a function of a Python file compute the rows (docs/applications.md). Agents will execute that file.",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def plan(*, run: Path, is_json: bool, **options: Any) -> None:
    """Plan a run: store the claims of INPUT, divided into units, and what is to be done with them.

    INPUT is Parquet, JSON Lines, a JSON array, CSV, TSV or text with one claim a line, plain or compressed (.gz,
    .zst): files, folders, globs. The same command again after an interruption completes the plan.
    """
    import msgspec

    from fsctx.coordinator import plan as planning
    from fsctx.coordinator.printing import printable

    with progress_bars(is_shown=not is_json) as progress:
        report = planning.plan(_request(run, **options), progress=progress)
    click.echo(msgspec.json.encode(report) if is_json else "\n".join(map(printable, _as_text(report))))


def _request(
    run: Path, *, inputs: Sequence[str], maps: Sequence[str], quoting: str | None, **options: Any
) -> "PlanRequest":
    from fsctx.coordinator.plan import PlanRequest

    for name in ("models", "templates"):
        options[name] = tuple(options[name])
    is_quoted = None if quoting is None else quoting == "on"
    return PlanRequest(run=run, inputs=tuple(inputs), gold=_gold(maps), is_quoted=is_quoted, **options)


def _gold(maps: Sequence[str]) -> dict[str, str]:
    gold: dict[str, str] = {}
    for given in maps:
        label, equals, meaning = given.rpartition("=")
        if not (label and equals and meaning):
            raise InputError(f"--map {given}: write it as GOLD=LABEL, such as --map half-true=REFUTED")
        if gold.setdefault(label, meaning) != meaning:
            raise InputError(f"--map {given}: {label} is mapped to {gold[label]} already; name it once")
    return gold


@contextmanager
def progress_bars(*, is_shown: bool) -> "Iterator[Progress]":
    """Show how far the plan is, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    steps: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not (is_shown and console.is_terminal)) as bars:

        def show(step: str, done: int, total: int | None) -> None:
            if step not in steps:
                steps[step] = bars.add_task(step)
            bars.update(steps[step], completed=done, total=total)

        yield show


def _as_text(report: "PlanReport") -> Iterator[str]:
    if report.is_new:
        yield f"Planned {report.folder}."
    else:
        yield f"{report.folder} is this very plan already; nothing was changed."
    columns = ", ".join(f"{part} from column {name}" for part, name in report.columns.items() if name)
    yield f"  rows      {report.rows:,} ({columns})"
    yield f"  tasks     {report.tasks}"
    yield f"  units     {report.units:,} of {report.unit_rows:,} rows"
    yield f"  bytes     {_size(report.claims_bytes)} of claims, {_size(report.model_bytes)} of models"
    yield f"  metadata  at most {report.metadata_operations:,} operations on the shared filesystem"
    if report.rungs:
        yield f"  sweep     on {', '.join(f'{rows:,}' for rows in report.rungs)} claims; who is clearly worse stops"
    if report.labels:
        yield "  labels"
        yield from _label_lines(report)
    for note in report.notes:
        yield f"  note: {note}"
    yield f"Next: fsctx submit {shlex.quote(str(report.folder))} --batch local -n 2"


def _label_lines(report: "PlanReport") -> Iterator[str]:
    alike = _alike(report)
    for template, *others in alike:
        more = f" and {len(others):,} more" if others else ""
        prefix = f"{template}{more}: " if len(alike) > 1 else ""
        unmapped = [label for label in report.labels if label.meaning[template] is None]
        for label in report.labels:
            meaning = label.meaning[template]
            if meaning is not None:
                yield f"    {prefix}{label.label} → {meaning}: {label.n_rows:,} rows"
        if unmapped:
            shown = ", ".join(f"{label.label} ({label.n_rows:,})" for label in unmapped[:12])
            more = f" and {len(unmapped) - 12} more" if len(unmapped) > 12 else ""
            n_rows = sum(label.n_rows for label in unmapped)
            yield f"    {prefix}not mapped, so {n_rows:,} rows count as unlabelled (--map GOLD=LABEL): {shown}{more}"
    if report.n_without_label:
        yield f"    without a label: {report.n_without_label:,} rows"


def _alike(report: "PlanReport") -> list[list[str]]:
    """Return the templates, together those that take every gold label for the same."""
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for template in report.labels[0].meaning:
        groups.setdefault(tuple(label.meaning[template] for label in report.labels), []).append(template)
    return list(groups.values())


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"
