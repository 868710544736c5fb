"""Rows without a usable verdict, by reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsctx.protocol.verdicts import Status

MAX_REASONS = 1_000
"""So many are told apart, so that memory stays bounded; the rest is counted together."""

N_EXAMPLES = 5
OTHER = "other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows of one task that ended the same way."""

    model: str
    template: str
    status: str
    reason: str
    rows: int
    ids: tuple[Any, ...]
    """Of the first few."""


@dataclass(slots=True)
class _Group:
    rows: int = 0
    ids: list[Any] = field(default_factory=list)


class Problems:
    """Groups of rows whose status is not ok."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str, str], _Group] = {}

    def add(self, model: str, template: str, table: pa.Table) -> None:
        """Look through a part's rows."""
        is_bad: Any = pc.not_equal(table["status"], pa.scalar(str(Status.OK)))
        if not pc.any(is_bad).as_py():
            return
        bad = table.select(["status", "error", "id"]).filter(is_bad)
        found = bad.group_by(["status", "error"], use_threads=False).aggregate([("id", "list")])
        for row in found.to_pylist():
            self._count((model, template, row["status"], _reason(row["error"])), row["id_list"])

    def result(self) -> tuple[Problem, ...]:
        """Return the groups, the largest first."""
        groups = sorted(self._groups.items(), key=lambda item: (-item[1].rows, item[0]))
        return tuple(
            Problem(model=key[0], template=key[1], status=key[2], reason=key[3], rows=group.rows, ids=tuple(group.ids))
            for key, group in groups
        )

    def _count(self, key: tuple[str, str, str, str], ids: Sequence[Any]) -> None:
        if key not in self._groups and len(self._groups) >= MAX_REASONS:
            key = (*key[:3], OTHER)
        group = self._groups.setdefault(key, _Group())
        group.rows += len(ids)
        group.ids += ids[: N_EXAMPLES - len(group.ids)]


def _reason(error: str | None) -> str:
    return shorten(error or "", width=200, placeholder=" …")
