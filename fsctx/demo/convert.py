"""Converts a GGUF file in a process of its own: the memory that it takes goes with the process.

`python -m fsctx.demo.convert FILE FOLDER`; what it says when it fails is its last line on stderr.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click

from fsctx.agent.engines.choose import make_engine
from fsctx.cache import NodeCache
from fsctx.errors import FsctxError, Misconfigured
from fsctx.protocol.manifest import Context

Say = Callable[[str], None]


def bring_to_node(context: Context, cache: NodeCache, *, say: Say) -> None:
    """Put a context into the node's cache, ready to load, and tell what takes time. Quick where it is there.

    Raises:
        Misconfigured: the file cannot be converted.
        NoSpace, InputError, Damaged: see `NodeCache`.
    """
    fetched = cache.fetch(context)
    if fetched.bytes:
        say(f"copied the model ({fetched.bytes / 1e6:,.0f} MB) to this node's cache, {cache.root}")
    if context.kind == "gguf":
        cache.converted(context, lambda file, folder: _convert_in_child(file, folder, say))


def _convert_in_child(file: Path, folder: Path, say: Say) -> None:
    say("converting the GGUF file to safetensors: once on this node, half a minute or so …")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fsctx.demo.convert", str(file), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Misconfigured(f"{file} could not be converted: {lines[-1]}")


def main(arguments: list[str]) -> int:
    """Convert the file named first into the folder named second."""
    file, folder = map(Path, arguments)
    try:
        convert = make_engine("hf", device="cpu").convert
        assert convert is not None
        convert(file, folder)
    except FsctxError as error:
        click.echo(f"\n{error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
