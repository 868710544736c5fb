"""The columns that an application adds to its rows: one JSON object in `text`, so that all results have one schema."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from fsctx.errors import Damaged

OUTPUT = "output_"
"""Prefix of these columns where they are collected."""

TEXT = "text"

TYPES: dict[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
    "list[int]": pa.list_(pa.int64()),
    "list[float]": pa.list_(pa.float32()),
}
"""What an application may declare, and what it is collected as: a list of floats is a vector in single precision."""


def fold(text: str | None, values: Mapping[str, Any], declared: Mapping[str, str]) -> str:
    """Return what a row's `text` holds, given the values of the columns that the application declares.

    Values of numpy and torch are taken as Python's.

    Raises:
        ValueError: a value is not of its column's type; says which.
    """
    plain = {name: _plain(name, values.get(name), kind) for name, kind in declared.items()}
    return msgspec.json.encode({TEXT: text, **plain}).decode()


def unfold(table: pa.Table, declared: Mapping[str, str], *, where: str) -> pa.Table:
    """Return verdicts with the text that the application gave, and its columns.

    Raises:
        Damaged: a text is not what `fold` returns.
    """
    try:
        rows = [{} if text is None else msgspec.json.decode(text) for text in table[TEXT].to_pylist()]
        texts = pa.array([row.get(TEXT) for row in rows], pa.string())
        found = [pa.array([row.get(name) for row in rows], TYPES[kind]) for name, kind in declared.items()]
    except (msgspec.MsgspecError, pa.ArrowException, AttributeError, TypeError) as error:
        raise Damaged(
            f"{where}: a text is not what an application's agent writes ({error}): restore the file"
        ) from None
    table = table.set_column(table.column_names.index(TEXT), TEXT, texts)
    for name, column in zip(declared, found, strict=True):
        table = table.append_column(OUTPUT + name, column)
    return table


def _plain(name: str, value: Any, kind: str) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None:
        return None
    is_list = kind.startswith("list[")
    item_kind = kind.removeprefix("list[").removesuffix("]")
    items: Iterable[Any] = value if is_list and isinstance(value, list | tuple) else [value]
    is_right = isinstance(value, list | tuple) == is_list and all(map(_CHECKS[item_kind], items))
    if not is_right:
        raise ValueError(f"{name!r} is {_described(value)}, and OUTPUT declares {kind}")
    if kind == "list[float]":
        return [float(f"{item:.9g}") for item in items]
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_int,
    "float": lambda value: isinstance(value, float) or _is_int(value),
    "bool": lambda value: isinstance(value, bool),
}


def _described(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {', '.join(sorted({type(item).__name__ for item in value})) or 'nothing'}"
    return type(value).__name__
