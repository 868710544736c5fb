"""What a collected row looks like: its columns, and what is the same in all rows of a task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import pyarrow as pa

from fsctx.errors import InputError
from fsctx.protocol.manifest import EXTRA, ROW_CLAIM, ROW_ID, ROW_LABEL, Manifest, Task
from fsctx.protocol.outputs import OUTPUT, TEXT, TYPES
from fsctx.protocol.templates import read_template
from fsctx.protocol.verdicts import schema as verdict_schema
from fsctx.store import Store


class From(Enum):
    """Where a collected column comes from."""

    CLAIMS = auto()
    VERDICTS = auto()
    ROW = auto()
    UNIT = auto()
    TASK = auto()
    GOLD = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """A collected column."""

    name: str
    kind: pa.DataType
    comes_from: From
    source: str = ""
    """Its name there, where that differs."""

    @property
    def key(self) -> str:
        """Its name where it comes from."""
        return self.source or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """A task of the run with what its template adds."""

    number: int
    task: Task
    labels: tuple[str, ...]
    gold: dict[str, str]
    """Gold label as given → label."""
    outputs: dict[str, str] = field(default_factory=dict)
    """The application's further columns; see `App.outputs`."""


def read_tasks(store: Store, manifest: Manifest) -> tuple[RunTask, ...]:
    """Read the run's tasks with their labels, as planned.

    Raises:
        Damaged: a template that the run was planned with is missing or unreadable.
    """
    app = manifest.app
    planned = {task.template for task in manifest.tasks}
    labels = {name: app.labels if app else read_template(store, name).label_names for name in planned}
    return tuple(
        RunTask(
            number=number,
            task=task,
            labels=labels[task.template],
            gold=manifest.gold.get(task.template, {}),
            outputs=app.outputs if app else {},
        )
        for number, task in enumerate(manifest.tasks)
    )


def shard_columns(manifest: Manifest, *, keep_columns: bool) -> list[str]:
    """Return the columns of the shards that collected rows are made of.

    Raises:
        InputError: the input's other columns are wanted, and the run has none.
    """
    if keep_columns and not manifest.columns:
        raise InputError(
            f"run {manifest.run} holds no other columns of its input: leave out --keep-columns, or plan it with them"
        )
    extra = [EXTRA + name for name in manifest.columns] if keep_columns else []
    return [*[ROW_ID] * manifest.has_ids, ROW_CLAIM, *[ROW_LABEL] * manifest.has_labels, *extra]


def collected_columns(claims: pa.Schema, tasks: Sequence[RunTask]) -> tuple[Column, ...]:
    """Return the columns of what is collected, in order, given those of the claims."""
    given_id = ROW_ID in claims.names
    first = [
        Column("id", claims.field(ROW_ID).type if given_id else pa.int64(), From.CLAIMS if given_id else From.ROW),
        Column("claim", claims.field(ROW_CLAIM).type, From.CLAIMS),
        Column("label", pa.string(), From.GOLD if ROW_LABEL in claims.names else From.NOTHING),
        Column("model", pa.string(), From.TASK),
        Column("template", pa.string(), From.TASK),
    ]
    of_verdicts = verdict_schema(all_labels(tasks))
    computed = [Column(one.name, one.type, From.VERDICTS) for one in of_verdicts if one.name != "row"]
    names_of = [column.name for column in computed]
    behind_text, at = names_of.index(TEXT) + 1, names_of.index("generation")
    declared = {name: kind for task in tasks for name, kind in task.outputs.items()}
    added = [Column(OUTPUT + name, TYPES[kind], From.VERDICTS) for name, kind in declared.items()]
    unit = Column("unit", pa.int64(), From.UNIT)
    fixed = [*first, *computed[:behind_text], *added, *computed[behind_text:at], unit, *computed[at:]]
    return (*fixed, *_extras(claims, {column.name for column in fixed}))


def _extras(claims: pa.Schema, taken: set[str]) -> Iterator[Column]:
    """Yield the input's other columns; a name that is taken (`input_tokens`) gets a `_` at its end."""
    for of_claims in claims:
        if of_claims.name.startswith(EXTRA):
            name = of_claims.name
            while name in taken:
                name += "_"
            taken.add(name)
            yield Column(name, of_claims.type, From.CLAIMS, source=of_claims.name)


def all_labels(tasks: Sequence[RunTask]) -> list[str]:
    """Return the labels of all tasks, each once, in the order in which they come."""
    return list(dict.fromkeys(label for task in tasks for label in task.labels))
