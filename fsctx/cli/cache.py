"""`fsctx cache`: what a node's cache holds."""

import json
from pathlib import Path
from typing import Any

import click

from fsctx.errors import Damaged

_SECONDS_PER_DAY = 86_400.0

_folder = click.option(
    "--cache",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the cache; else $FSCTX_CACHE, else the batch system's scratch.",
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group("cache")
def cache() -> None:
    """Look at this node's cache of model files, check it, make room in it."""


@cache.command("list")
@_folder
@_json
def list_(folder: Path | None, *, as_json: bool) -> None:
    """Show what the cache holds, longest unused first."""
    node = _open(folder)
    entries = [_plain(entry) for entry in node.entries()]
    if as_json:
        click.echo(json.dumps({"root": str(node.root), "entries": entries}))
        return
    click.echo(f"{node.root}: {len(entries)} entries, {sum(e['size_bytes'] for e in entries) / 1e9:.2f} GB")
    for entry in entries:
        click.echo(_line(entry))


@cache.command("verify")
@_folder
@_json
def verify(folder: Path | None, *, as_json: bool) -> None:
    """Read every file and compare it with its hashes; exit 4 where one differs."""
    node = _open(folder)
    found = node.verify()
    damaged = {name: problems for name, problems in found.items() if problems}
    if as_json:
        click.echo(json.dumps({"root": str(node.root), "checked": len(found), "damaged": damaged}))
    else:
        click.echo(f"{node.root}: {len(found) - len(damaged)} of {len(found)} entries are sound")
    if damaged:
        name, problems = next(iter(damaged.items()))
        digest = name.partition("/")[2]
        raise Damaged(f"{len(damaged)} damaged, first {problems[0]}: run `fsctx cache prune {digest}`")


@cache.command("prune")
@click.argument("digests", nargs=-1)
@click.option("--days", type=click.FloatRange(min=0), help="Remove what was not used for so many days.")
@click.option("--all", "is_all", is_flag=True, help="Remove everything.")
@_folder
@_json
def prune(digests: tuple[str, ...], days: float | None, folder: Path | None, *, is_all: bool, as_json: bool) -> None:
    """Remove entries: the DIGESTS given, those unused for some --days, or --all; without any of these, only debris."""
    node = _open(folder)
    if digests or days is not None or is_all:
        chosen = frozenset(digests) if digests else None
        gone = node.prune(unused_s=(days or 0.0) * _SECONDS_PER_DAY, digests=chosen)
    else:
        gone = node.prune(digests=frozenset())
    entries = [_plain(entry) for entry in gone]
    if as_json:
        click.echo(json.dumps({"root": str(node.root), "removed": entries}))
    else:
        click.echo(f"{node.root}: removed {len(gone)} entries, {sum(e['size_bytes'] for e in entries) / 1e9:.2f} GB")


def _open(folder: Path | None) -> Any:
    import os

    from fsctx.cache import NodeCache, default_root

    return NodeCache(default_root(os.environ, folder))


def _plain(entry: Any) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain


def _line(entry: dict[str, Any]) -> str:
    days = entry["unused_s"] / _SECONDS_PER_DAY
    size = entry["size_bytes"] / 1e9
    return f"{entry['kind']:<10} {entry['digest'][:16]:<16} {size:>8.2f} GB  unused {days:>5.1f} d  {entry['name']}"
