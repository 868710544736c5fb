"""`fsctx report`: the page about a run, at any time."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="HTML page to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics too, as `fsctx collect --json` does.")
def report(*, run: Path, output: Path, as_json: bool) -> None:
    """Write a page about RUN: its verdicts so far, how sure they are, and what its fleet did.

    One file that needs no network. Safe while agents work; what is missing is counted, and no reason to fail.
    """
    import msgspec

    from fsctx.coordinator.report.page import report_so_far
    from fsctx.store import PosixStore

    summary = report_so_far(PosixStore(run), output)
    if as_json:
        click.echo(msgspec.json.encode(summary))
    else:
        click.echo(f"Written to {output}: {summary.rows:,} verdicts, {summary.missing:,} missing")
