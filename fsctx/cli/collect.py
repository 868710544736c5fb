"""`fsctx collect`: a run's verdicts into one file, with their statistics."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # heavy: not for --help
    from fsctx.coordinator.collect.collect import Progress, Summary


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write: .parquet, .jsonl or .csv.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["rows", "openai"]),
    default="rows",
    show_default=True,
    help="openai: answers of an OpenAI batch, into a .jsonl file.",
)
@click.option("--partial", "is_partial", is_flag=True, help="Take what is there, though verdicts are missing.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="HTML page to write: the verdicts and the fleet.",
)
@click.option("--keep-columns", is_flag=True, help="Add the input's other columns, as input_<name>.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as one JSON document.")
def collect(*, run: Path, is_partial: bool, report: Path | None, as_json: bool, **asked: Any) -> None:
    """Write one row per claim and task of RUN, in input order, and show accuracy.

    First it is proved that every planned verdict is there exactly once. Where some are missing, nothing is
    written and the exit code is 3 (--partial: what is there is written). Safe while agents work.
    """
    from fsctx.coordinator.collect import collect as collecting
    from fsctx.coordinator.report import page
    from fsctx.store import PosixStore

    store = PosixStore(run)
    if report is not None:
        page.check_report(report)
    request = collecting.Request(is_partial=is_partial, **asked)
    with _progress(is_shown=not as_json) as progress:
        summary = collecting.collect(store, request, progress=progress)
    if report is not None:
        page.write_report(report, store, summary)
    _print(summary, as_json=as_json)


def _print(summary: "Summary", *, as_json: bool) -> None:
    import msgspec

    from fsctx.coordinator.collect import text

    if as_json:
        click.echo(msgspec.json.encode(summary))
    else:
        text.show(summary, text.console_for_output())


@contextlib.contextmanager
def _progress(*, is_shown: bool) -> Iterator["Progress"]:
    """Show a bar on stderr, if that is a terminal."""
    from fsctx.cli.plan import progress_bars

    with progress_bars(is_shown=is_shown) as bars:
        yield lambda done, expected: bars("collecting", done, expected)
