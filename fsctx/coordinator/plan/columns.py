"""Which columns are the id, the claim and the gold label: as asked for, else by common names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fsctx.errors import InputError

CLAIM_NAMES = (
    "claim",
    "claim_text",
    "claims",
    "statement",
    "hypothesis",
    "sentence",
    "text",
    "question",
    "prompt",
    "query",
    "input",
    "content",
)
LABEL_NAMES = (
    "label",
    "gold_label",
    "gold",
    "verdict",
    "veracity",
    "rating",
    "labels",
    "truth",
    "target",
    "answer",
    "class",
)
ID_NAMES = ("id", "custom_id", "claim_id", "uid", "uuid", "idx", "index", "example_id", "key", "qid")
_MAX_NAME_CHARS = 64
_MAX_NAME_WORDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the parts of a shard come from: names of the input's columns."""

    claim: str
    id: str | None
    label: str | None
    extras: dict[str, pa.DataType]
    """All others, with their types in the shard."""

    @property
    def names(self) -> list[str]:
        """All columns that must be read, each once."""
        return list(dict.fromkeys(n for n in (self.id, self.claim, self.label, *self.extras) if n is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The columns that the user named."""

    claim: str | None = None
    id: str | None = None
    label: str | None = None


def looks_like_header(cells: Sequence[str]) -> bool:
    """Tell whether a first row names columns: a common name is among short cells, or all are short, distinct words."""
    plain = [cell.strip().lower() for cell in cells]
    if any(len(cell) > _MAX_NAME_CHARS for cell in plain):
        return False
    if set(plain) & {*CLAIM_NAMES, *LABEL_NAMES, *ID_NAMES}:
        return True
    are_words = all(cell and not _is_number(cell) and len(cell.split()) <= _MAX_NAME_WORDS for cell in plain)
    return are_words and len(set(plain)) == len(plain)


def choose_columns(
    columns: Mapping[str, pa.DataType], asked: Asked, *, where: str, sample: Sequence[str] = ()
) -> Layout:
    """Choose the id, claim and label columns. `sample` (the first row's values) is shown where names say nothing.

    Raises:
        InputError: one that was asked for is not there, or no claim column can be guessed; lists what was found.
    """
    claim = _asked(columns, asked.claim, "--claim-column", where) or _guess(columns, CLAIM_NAMES)
    if claim is None:
        raise InputError(
            f"{where} has no column that is known to hold claims (found: {_listed(columns, sample)}): "
            "pass --claim-column with the right one"
        )
    if pa.types.is_nested(columns[claim]):
        raise InputError(f"{where}: column {claim} holds {columns[claim]}, not text: pass another --claim-column")
    rest = {name: kind for name, kind in columns.items() if name != claim and not pa.types.is_nested(kind)}
    label = _asked(columns, asked.label, "--label-column", where) or _guess(rest, LABEL_NAMES)
    id_column = _asked(columns, asked.id, "--id-column", where) or _guess(rest, ID_NAMES)
    extras = {n: _stored(kind) for n, kind in columns.items() if n not in (claim, label, id_column)}
    return Layout(claim=claim, id=id_column, label=label, extras=extras)


def _asked(columns: Mapping[str, pa.DataType], name: str | None, flag: str, where: str) -> str | None:
    if name is None or name in columns:
        return name
    raise InputError(f"{where} has no column {name!r} (found: {_listed(columns)}): pass {flag} with one of these")


def _guess(columns: Mapping[str, pa.DataType], common: Sequence[str]) -> str | None:
    """Return the column with the first of the common names, in any case."""
    by_name = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(list(columns))}
    return next((by_name[name] for name in common if name in by_name), None)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of an input's column in the shard: nested values become JSON text."""
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    is_text = pa.types.is_nested(kind) or pa.types.is_null(kind) or "string" in str(kind)
    return pa.string() if is_text else kind


def _listed(columns: Mapping[str, pa.DataType], sample: Sequence[str] = ()) -> str:
    names = [f"{name} {value[:24]!r}" for name, value in zip(columns, sample, strict=False)] or list(columns)
    return ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
