"""What all ways of encoding share: a row that cannot be encoded costs only itself."""

from collections.abc import Callable, Sequence
from typing import Any

from fsctx.agent.engines.base import Encoded, Row
from fsctx.agent.engines.hf.errors import first_line
from fsctx.errors import InputError
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.load import used_columns
from fsctx.templates.model import Template
from fsctx.templates.render import render

SENTINELS = (
    "The Danube flows through Vienna.",
    "Земля вращается вокруг Солнца.",
    "7 × 6 = 42",
    "水在一百度沸腾。",
)
"""Claims of different scripts and beginnings: what their prompts have in common is constant."""


def encode_rows(rows: Sequence[Row], encode: Callable[[Sequence[Row]], list[Encoded]]) -> list[Encoded]:
    """Encode all rows at once, or one by one where that fails: the row that fails is refused with the reason."""
    try:
        return encode(rows)
    except Exception:  # noqa: BLE001 - found again below, on the row that causes it
        return [_encode_alone(row, encode) for row in rows]


def refuse(row: int, error: str, *, status: Status = Status.ERROR, input_tokens: int = 0) -> Encoded:
    """Return a row that does not go to the device."""
    verdict = Verdict(row=row, status=status, error=error, input_tokens=input_tokens)
    return Encoded(row=row, n_tokens=input_tokens, refused=verdict)


def sentinel_rows(template: Template) -> list[Row]:
    """Return rows with the sentinel claims, and stand-ins for the columns; none where no stand-in will do."""
    stand_ins: tuple[Any, ...] = ("-", 1, 1.0, [], {})
    for column in stand_ins:
        columns = dict.fromkeys(used_columns(template), column)
        rows = [Row(row=n, claim=claim, columns=columns) for n, claim in enumerate(SENTINELS)]
        try:
            for row in rows:
                render(template, row.claim, row.columns)
        except InputError:
            continue
        return rows
    return []


def _encode_alone(row: Row, encode: Callable[[Sequence[Row]], list[Encoded]]) -> Encoded:
    try:
        return encode([row])[0]
    except Exception as error:  # noqa: BLE001 - recorded on the row
        return refuse(row.row, first_line(error))
