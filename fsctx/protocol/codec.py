"""Records on disk: JSON objects with a `schema` number, read strictly by number and leniently by field.

A reader ignores fields that it does not know and refuses a schema that it does not know.
"""

from typing import Any, TypeVar

import msgspec

from fsctx.errors import Damaged, InputError

Record = TypeVar("Record")
SCHEMA = 2
"""The newest that this version reads."""


def encode(record: Any, *, schema: int = 1) -> bytes:
    """Return a record as one line of JSON. A schema above 1 keeps out versions that would misread it."""
    return msgspec.json.encode({"schema": schema, **msgspec.to_builtins(record)}) + b"\n"


def encode_pretty(record: Any, *, schema: int = 1) -> bytes:
    """Return a record as JSON for people to read; `schema` as in `encode`."""
    return msgspec.json.format(encode(record, schema=schema), indent=1).strip() + b"\n"


def decode(data: bytes, kind: type[Record], *, where: str) -> Record:
    """Read a record.

    Raises:
        InputError: its schema is newer than this version knows.
        Damaged: it is not a record of this kind.
    """
    try:
        schema = msgspec.json.decode(data, type=_Versioned).schema
        if schema > SCHEMA:
            raise InputError(f"{where} has schema {schema}; this fsctx reads up to {SCHEMA}: install a newer fsctx")
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{where} is not a valid {kind.__name__} record ({error}): restore it") from None


class _Versioned(msgspec.Struct):
    schema: int
