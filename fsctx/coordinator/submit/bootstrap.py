"""The command of a pilot that brings its software environment along."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import fsctx

_NAME = "bootstrap.py"


def bootstrap_file() -> Path:
    """Return where the bootstrap is: in the installed package, or in a checkout. It is one file and needs no other."""
    packaged = Path(str(resources.files(fsctx))) / "submit_templates" / _NAME
    return packaged if packaged.is_file() else Path(fsctx.__file__).parent.parent / "submit_templates" / _NAME


def pilot_command(
    run: Path, digest: str, *, bootstrap: Path | None = None, python: str = "python3", options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the arguments that start an agent from an environment that `fsctx env add` made known to the run.

    `python`: any Python 3.8 or newer of the node. `bootstrap`: the file's path there, where the batch system brings
    it. `options` go to `fsctx agent`. The command becomes the agent by exec, so signals reach it.
    """
    return (python, "-I", str(bootstrap or bootstrap_file()), str(run), "--env", digest, *options)
