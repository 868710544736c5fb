"""`fsctx demo`."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="[DIR]", default="fsctx-demo", type=click.Path(path_type=Path))
@click.option("--model", metavar="REF", help="Another model; `fake` needs neither torch nor a download.")
@click.option(
    "--claims",
    "n_claims",
    type=click.IntRange(30, 300),
    default=240,
    show_default=True,
    help="How many of the claims that come with fsctx to verify.",
)
def demo(folder: Path, model: str | None, n_claims: int) -> None:
    """See everything at work: plan, two agents of which one is killed, collect.

    Works in DIR (fsctx-demo here, if not given); each call adds a run of its own there. The model, SmolLM2-135M, is
    fetched once with pip. Some minutes on two cores. Ctrl-C ends the agents too.
    """
    from fsctx.coordinator.collect.text import console_for_output
    from fsctx.demo.story import DemoRequest, run_demo

    request = DemoRequest(folder=folder, model=model, n_claims=n_claims, fsctx=_own_name())
    run_demo(request, console_for_output())


def _own_name() -> str:
    """Return how the command is called here, for people to copy."""
    import shlex
    import shutil
    import sys

    if shutil.which("fsctx"):
        return "fsctx"
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "fsctx" else f"{shlex.quote(sys.executable)} -m fsctx"
