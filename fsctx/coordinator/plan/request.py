"""What is asked of a plan, and what it says when it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fsctx.protocol.manifest import Method

DEFAULT_TEMPLATE = "fever"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Everything that a user can ask of a plan. None means: decide by yourself and say what was decided."""

    inputs: tuple[str, ...]
    """Files, folders and globs, in order."""
    run: Path
    models: tuple[str, ...]
    base: str | None = None
    """REF of the model that adapters among `models` are for; None: as each says itself."""
    templates: tuple[str, ...] = ()
    """Empty: `DEFAULT_TEMPLATE`, or with an application none."""
    method: Method = "score"
    id_column: str | None = None
    claim_column: str | None = None
    label_column: str | None = None
    gold: Mapping[str, str] = field(default_factory=dict)
    """Gold label as given → label of the templates."""
    unit_rows: int | None = None
    ttl_s: float | None = None
    has_header: bool | None = None
    """Whether the first row of CSV and TSV names the columns."""
    is_quoted: bool | None = None
    """Whether quotes in CSV and TSV enclose a cell; None: in CSV yes, in TSV no."""
    is_lean: bool = False
    """Whether only the columns that templates use are stored."""
    sweep: Literal["halving"] | None = None
    """Whether tasks that are clearly worse are dropped on the way."""
    budget: int | None = None
    """Most inferences of a sweep."""
    app: str | None = None
    """`FILE:NAME` of an application that computes the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCount:
    """A gold label of the input: how many rows have it, and what it means in each template (None: nothing)."""

    label: str
    n_rows: int
    meaning: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What a plan came to."""

    folder: str
    run: str
    is_new: bool
    """False where the same plan stood there already."""
    rows: int
    tasks: int
    units: int
    unit_rows: int
    claims_bytes: int
    model_bytes: int
    metadata_operations: int
    """At most so many calls to the shared filesystem's metadata server, over the whole run."""
    ttl_s: float
    columns: dict[str, str | None]
    """`id`, `claim` and `label` → column of the input."""
    labels: tuple[LabelCount, ...] = ()
    n_without_label: int = 0
    """Rows whose gold label is missing."""
    rungs: tuple[int, ...] = ()
    """Claims of each rung of a sweep that stops early, together with those before it."""
    notes: tuple[str, ...] = ()
    """What was guessed or looks odd, for the user to check."""


class Progress(Protocol):
    """Told how far a step is; `total` is None where nobody knows."""

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """Take note."""
