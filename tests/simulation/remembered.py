"""Parquet that is written and read once per content: what takes most of the time of a history, and decides nothing.

What was not written in this history (torn files, planted ones) is read by the real code.
"""

import contextlib
import functools
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import pyarrow as pa

from fsctx.agent.engines.base import Row
from fsctx.agent.slices import Slices
from fsctx.errors import Damaged
from fsctx.protocol import names, verdicts
from fsctx.protocol.geometry import Place

_read_slice = Slices.read

_elsewhere: list[Any] = []
"""The one function that reads what was not written in this history; a planted fault may be in its place."""

_written: dict[bytes, tuple[pa.Table, str, int]] = {}
"""Content → table, run and unit, of the history that is lived through."""


@contextlib.contextmanager
def parquet() -> Iterator[None]:
    """Remember what is written and read meanwhile."""
    _written.clear()
    _elsewhere[:] = [verdicts.from_parquet]
    with (
        patch.object(verdicts, "to_parquet", _to_parquet),
        patch.object(verdicts, "from_parquet", _from_parquet),
        patch.object(Slices, "read", _read),
    ):
        yield


def written(content: bytes) -> pa.Table | None:
    """Return the table of a file that was written in this history."""
    known = _written.get(content)
    return None if known is None else known[0]


def _to_parquet(table: pa.Table, *, run: str, unit: int) -> bytes:
    """Stand for `to_parquet`: equal tables give equal bytes, and half of them are not Parquet."""
    content = f"{run} {unit} {table.to_pydict()}".encode()
    _written[content] = (table, run, unit)
    return content


def _from_parquet(source: BinaryIO, *, run: str, unit: int, labels: Sequence[str], where: str) -> pa.Table:
    content = source.read()
    if content not in _written:
        return _elsewhere[-1](io.BytesIO(content), run=run, unit=unit, labels=labels, where=where)
    table, *marks = _written[content]
    if marks != [run, unit]:
        raise Damaged(f"{where} says it is of {marks}")
    return table


def _read(self: Slices, place: Place, columns: Sequence[str]) -> list[Row]:
    store: Any = self._store
    with store.open(names.shard(place.shard)) as source:
        content = source.read()
    return list(_rows(content, self._run, place, tuple(columns)))


@functools.lru_cache(maxsize=4096)
def _rows(content: bytes, run: str, place: Place, columns: tuple[str, ...]) -> list[Row]:
    return _read_slice(Slices(_Held(content), run=run), place, columns)  # type: ignore[arg-type]


class _Held:
    """A store that holds one file."""

    root = Path("held")

    def __init__(self, content: bytes) -> None:
        self._content = content

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self._content)
