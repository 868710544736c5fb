"""`fsctx audit`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsctx.cli.numbers import Number

if TYPE_CHECKING:
    from fsctx.agent.audit import Audit


class Replay(click.ParamType[tuple[float | None, int]]):
    """A share such as `1%`, or a number of rows."""

    name = "SHARE%|ROWS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float | None, int]:
        """See `click.ParamType.convert`."""
        if isinstance(value, tuple):
            return value
        number, percent, rest = str(value).partition("%")
        try:
            wanted = float(number) / 100 if percent else int(number)
        except ValueError:
            wanted = 0
        if rest or not 0 < wanted < float("inf") or (percent and wanted > 1):
            self.fail(f"{value!r} is neither a share such as 1% nor a number of rows such as 500", param, ctx)
        return (wanted, 0) if percent else (None, int(wanted))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--replay", type=Replay(), default="1%", show_default=True, help="How much is computed again.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed draws other rows.")
@click.option(
    "--tolerance",
    type=Number(min=0),
    default=0.25,
    show_default=True,
    metavar="NAT",
    help="A log-probability may differ by so much; bfloat16 differs from float32 by about that.",
)
@click.option("--engine", default="auto", show_default=True, help="auto, hf, or fake[:option=value,…].")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", default=None, help="float32, bfloat16 or float16; by the device if not given.")
@click.option("--cache", type=click.Path(path_type=Path), default=None, help="The node's cache; else $FSCTX_CACHE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def audit(
    *,
    run: Path,
    replay: tuple[float | None, int],
    seed: int,
    tolerance: float,
    cache: Path | None,
    as_json: bool,
    **device: Any,
) -> int:
    """Compute a sample of RUN's published verdicts again on this device, and say how far the two are apart.

    Told by the device, engine and dtype that computed them. Takes no work from RUN and writes nothing into it. The
    exit code is 4 where a row differs by more than --tolerance, 3 where nothing is published yet.
    """
    import msgspec

    from fsctx.agent.audit import Sample
    from fsctx.agent.audit import audit as compute
    from fsctx.agent.options import AgentOptions
    from fsctx.cache import default_root
    from fsctx.coordinator.printing import printable
    from fsctx.errors import Damaged

    options = AgentOptions(cache=default_root(os.environ, cache), **device)
    sample = Sample(share=replay[0], n_rows=replay[1], seed=seed)
    found = compute(run, options, sample, tolerance=tolerance, say=lambda line: click.echo(line, err=True))
    click.echo(msgspec.json.encode(found) if as_json else "\n".join(map(printable, _as_text(found))))
    return Damaged.exit_code if found.beyond else 0


def _as_text(found: "Audit") -> Iterator[str]:
    here = ", ".join((found.engine, found.device, found.dtype))
    yield f"{found.rows:,} of {found.published:,} published rows computed again by {here}"
    if found.skipped:
        yield f"  {found.skipped:,} more were drawn that are published as errors"
    for group in found.disagreements:
        makers = group.makers
        by = ", ".join(part for part in (makers.engine, makers.device, makers.dtype) if part)
        yield f"{makers.model}, {makers.template}, by {by}: {group.rows:,} rows"
        largest = "" if group.largest is None else f", log-probabilities up to {group.largest:.3g} nat apart"
        yield f"  {group.flips:,} other verdicts ({group.near_ties:,} near ties){largest}"
        if group.beyond:
            worst = ", ".join(map(str, group.worst_rows))
            yield f"  {group.beyond:,} rows differ by more than {found.tolerance:g} nat, the worst of them: {worst}"
    if found.beyond:
        yield f"{found.beyond:,} rows are not what this device computes: look for other files, versions or a bad device"
    else:
        yield "All agree within the tolerance."
