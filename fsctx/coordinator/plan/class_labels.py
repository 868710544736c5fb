"""Labels that Hugging Face's `datasets` keeps as numbers: their names stand in the schema's metadata."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fsctx.coordinator.plan.rows import Column

_KEY = b"huggingface"

Names = Mapping[str, tuple[str, ...]]
"""Column → the names of its numbers, from 0."""


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the columns that hold numbers of names; none where the metadata do not say so."""
    try:
        features: Any = json.loads((schema.metadata or {})[_KEY])["info"]["features"]
        found = {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
        return {name: tuple(map(str, found[name])) for name in found if pa.types.is_integer(schema.field(name).type)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def columns_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return a file's columns with the types that `with_names` gives them."""
    kinds = dict(zip(schema.names, schema.types, strict=True))
    return kinds | dict.fromkeys(class_names(schema), pa.string())


def with_names(batch: pa.RecordBatch, names: Names) -> pa.RecordBatch:
    """Return a batch with names instead of numbers; a number without one, such as -1, is no label."""
    arrays = [
        _named(column, names[name]) if name in names else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _named(numbers: Column, names: tuple[str, ...]) -> Column:
    known: dict[Any, str] = dict(enumerate(names))
    return pa.array([known.get(number) for number in numbers.to_pylist()], pa.string())
