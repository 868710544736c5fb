"""`fsctx cache`: what a node's cache holds."""

import json
from pathlib import Path
from typing import Any

import click

from fsctx.cli.numbers import Number
from fsctx.errors import Damaged, InputError

_SECONDS_PER_DAY = 86_400.0
_SHORTEST = 6
"""So many characters of a digest name it."""

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
    """Show what the cache holds, longest unused first, and what is in use."""
    import os

    from fsctx.cache.room import quota

    node = _open(folder)
    entries = [_plain(entry) for entry in node.entries()]
    limit = quota(os.environ)
    if as_json:
        click.echo(json.dumps({"root": str(node.root), "quota_bytes": limit, "entries": entries}))
        return
    of = f" of {limit / 1e9:.2f} GB" if limit is not None else ""
    click.echo(f"{node.root}: {len(entries)} entries, {_gigabytes(entries)}{of}")
    for entry in entries:
        click.echo(_line(entry))


@cache.command("verify")
@_folder
@_json
def verify(folder: Path | None, *, as_json: bool) -> None:
    """Read every file and compare it with its hashes; exit 4 where one differs.

    What is damaged is taken out of use: the next agent fetches the parts again that are wrong.
    """
    node = _open(folder)
    found = node.verify()
    damaged = [finding for finding in found if finding.problems]
    if as_json:
        plain = [_plain(finding) for finding in damaged]
        click.echo(json.dumps({"root": str(node.root), "checked": len(found), "damaged": plain}))
    else:
        click.echo(f"{node.root}: {len(found) - len(damaged)} of {len(found)} entries are sound")
    if damaged:
        in_use = sum(finding.is_in_use for finding in damaged)
        end = f"{in_use} in use: run this again when their agents have left" if in_use else "the next agent mends them"
        raise Damaged(f"{len(damaged)} damaged, first {damaged[0].problems[0]}; {end}")


@cache.command("prune")
@click.argument("digests", nargs=-1)
@click.option("--days", type=Number(min=0), help="Remove what was not used for so many days.")
@click.option("--all", "is_all", is_flag=True, help="Remove everything.")
@_folder
@_json
def prune(digests: tuple[str, ...], days: float | None, folder: Path | None, *, is_all: bool, as_json: bool) -> None:
    """Remove entries: those whose digests begin like DIGESTS, those unused for some --days, or --all.

    What is half fetched goes in any case.

    What an agent uses right now stays.
    """
    node = _open(folder)
    if digests or days is not None or is_all:
        chosen = _begin_with(digests, node) if digests else None
        gone = node.prune(unused_s=(days or 0.0) * _SECONDS_PER_DAY, digests=chosen)
    else:
        gone = node.prune(digests=frozenset())
    entries = [_plain(entry) for entry in gone]
    if as_json:
        click.echo(json.dumps({"root": str(node.root), "removed": entries}))
    else:
        in_use = sum(entry.is_pinned for entry in node.entries())
        click.echo(f"{node.root}: removed {len(gone)} entries, {_gigabytes(entries)}; {in_use} in use")


def _begin_with(given: tuple[str, ...], node: Any) -> frozenset[str]:
    """Return the digests that begin like those given: a list shows no more than their beginnings."""
    known = [entry.digest for entry in node.entries()]
    found: set[str] = set()
    for start in given:
        like = {one for one in known if one == start or (len(start) >= _SHORTEST and one.startswith(start))}
        if not like:
            raise InputError(
                f"{node.root} has no entry {start!r}: pass {_SHORTEST} or more characters of a digest that "
                "`fsctx cache list` shows"
            )
        found |= like
    return frozenset(found)


def _open(folder: Path | None) -> Any:
    import os

    from fsctx.cache import NodeCache, default_root

    return NodeCache(default_root(os.environ, folder))


def _plain(entry: Any) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain


def _gigabytes(entries: list[dict[str, Any]]) -> str:
    return f"{sum(entry['size_bytes'] for entry in entries) / 1e9:.2f} GB"


def _line(entry: dict[str, Any]) -> str:
    days, size = entry["unused_s"] / _SECONDS_PER_DAY, entry["size_bytes"] / 1e9
    state = "in use" if entry["is_pinned"] else f"unused {days:.1f} d"
    half = "" if entry["is_whole"] else "  (not whole yet)"
    return f"{entry['kind']:<10} {entry['digest'][:16]:<16} {size:>8.2f} GB  {state:<14} {entry['name']}{half}"
