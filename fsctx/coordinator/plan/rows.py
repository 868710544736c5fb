"""An input's batch → the same rows as a shard holds them. Pure."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fsctx.coordinator.plan.columns import Layout
from fsctx.coordinator.plan.reading import Ids
from fsctx.protocol.manifest import EXTRA, ROW_CLAIM, ROW_ID, ROW_LABEL

Column: TypeAlias = "pa.Array[Any]"


class IdsAreText(Exception):
    """Not all ids are whole numbers after all: the shards must be written anew, with ids as text."""


def shard_schema(layout: Layout, ids: Ids) -> pa.Schema:
    """Return the columns of a run's shards: ids and labels only where the input has them."""
    id_type: pa.DataType = pa.int64() if ids is Ids.NUMBERS else pa.string()
    return pa.schema(
        [
            *([pa.field(ROW_ID, id_type)] if layout.id else []),
            pa.field(ROW_CLAIM, pa.string()),
            *([pa.field(ROW_LABEL, pa.string())] if layout.label else []),
            *(pa.field(EXTRA + name, kind) for name, kind in layout.extras.items()),
        ]
    )


def to_shard(batch: pa.RecordBatch, layout: Layout, ids: Ids) -> pa.RecordBatch:
    """Return a batch as a shard holds it.

    Raises:
        IdsAreText: `ids` is NUMBERS, but here is one that would not survive that (`007`, `a1`, a float).
        pa.ArrowInvalid: a value has no form as text.
    """
    arrays = [
        *([_ids(batch.column(layout.id), ids)] if layout.id else []),
        _text(batch.column(layout.claim)),
        *([_blank_to_null(_text(batch.column(layout.label)))] if layout.label else []),
        *(_extra(batch.column(name), kind) for name, kind in layout.extras.items()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shard_schema(layout, ids))


def count_labels(batch: pa.RecordBatch) -> Mapping[str | None, int]:
    """Count the gold labels of a shard's batch; None: rows without one."""
    if ROW_LABEL not in batch.schema.names:
        return {None: batch.num_rows}
    counts: Any = pc.value_counts(batch.column(ROW_LABEL))
    return {pair["values"]: pair["counts"] for pair in counts.to_pylist()}


def _ids(array: Column, ids: Ids) -> Column:
    if ids is Ids.TEXT:
        return _blank_to_null(_text(array))
    if pa.types.is_integer(array.type):
        return _cast_ids(array)
    text = _blank_to_null(_text(array))
    numbers = _cast_ids(text)
    if not pc.all(pc.equal(numbers.cast(pa.string()), text)).as_py() and text.null_count < len(text):
        raise IdsAreText
    return numbers


def _cast_ids(array: Column) -> Column:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        raise IdsAreText from None


def _text(array: Column) -> Column:
    """Return any column as strings; nested values as JSON."""
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_nested(array.type):
        return pa.array([None if v is None else _json(v) for v in array.to_pylist()], pa.string())
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array.cast(pa.string())


def _extra(array: Column, kind: pa.DataType) -> Column:
    if array.type == kind:
        return array
    return _text(array) if pa.types.is_string(kind) else array.cast(kind)


def _blank_to_null(text: Column) -> Column:
    """Return no value for an empty one: tables have no other way to say that there is none."""
    is_blank = pc.equal(text, pa.scalar(""))
    return pc.if_else(is_blank, None, text) if pc.any(is_blank).as_py() else text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
