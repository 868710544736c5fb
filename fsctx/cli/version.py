"""`fsctx version`: what a report of a fault begins with."""

import importlib.util
import re
from importlib import metadata
from typing import Any

import click

from fsctx import __version__

ENGINES = {"fake": (), "hf": ("torch", "transformers", "safetensors"), "vllm": ("vllm",)}
"""The engines of this version, and what each cannot do without."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def version(*, as_json: bool) -> None:
    """Show the versions of fsctx, Python and packages, and which engines are installed here.

    Packages are looked for, not loaded: an engine that is installed may still not find its device.
    """
    import json

    seen = versions()
    if as_json:
        click.echo(json.dumps(seen, indent=1))
        return
    found = ", ".join(name for name, is_found in seen["engines"].items() if is_found)
    lines = {**seen, "run_schema": f"{seen['run_schema']} (the newest run folder that this version reads)"}
    lines |= {"engines": found, "packages": ""}
    for name, value in lines.items():
        click.echo(f"{name.replace('_', ' '):<12} {value}".rstrip())
    for name, value in seen["packages"].items():
        click.echo(f"  {name:<18} {value or 'not installed'}")


def versions() -> dict[str, Any]:
    """Return the document that `fsctx version --json` prints."""
    import platform

    from fsctx.protocol.codec import SCHEMA

    return {
        "fsctx": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "run_schema": SCHEMA,
        "engines": {name: all(map(importlib.util.find_spec, needed)) for name, needed in ENGINES.items()},
        "packages": {name: _installed(name) for name in _required()},
    }


def _required() -> list[str]:
    """Return the packages that fsctx and its extras ask for; none where it is not installed but run from its folder."""
    try:
        asked = metadata.requires("fsctx") or []
    except metadata.PackageNotFoundError:
        return []
    return sorted({match[0] for line in asked if (match := re.match(r"[\w.-]+", line))})


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
