"""`fsctx collect`: prove, then write, count and report in one pass over the results."""

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import pyarrow as pa

from fsctx.coordinator.collect.claims import Claims
from fsctx.coordinator.collect.comparing import Comparison
from fsctx.coordinator.collect.layout import collected_columns, read_tasks, shard_columns
from fsctx.coordinator.collect.makers import Agreement, Maker
from fsctx.coordinator.collect.metrics import TaskMetrics
from fsctx.coordinator.collect.problems import Problem
from fsctx.coordinator.collect.proof import FailedUnit, Proof, prove
from fsctx.coordinator.collect.rows import Source, interleave, parts_by_window
from fsctx.coordinator.collect.tally import Tally
from fsctx.coordinator.collect.writers import FileFormat, Writer, check_place, writer_for, writing
from fsctx.coordinator.sweeps import SweepView, view_sweep
from fsctx.errors import InputError, NotComplete
from fsctx.protocol import names
from fsctx.protocol.decisions import read_decisions
from fsctx.protocol.manifest import Manifest, read_manifest
from fsctx.protocol.published import results_of
from fsctx.protocol.sweep import Decision, extent_of
from fsctx.store import Store

Progress = Callable[[int, int], None]
"""Told verdicts collected and verdicts expected."""

Take = Callable[[pa.Table], None]
"""Given rows as they are collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of `collect`."""

    output: Path | None = None
    is_partial: bool = False
    """Whether a run that is not complete is collected as far as it is."""
    keep_columns: bool = False
    form: FileFormat = "rows"
    """What `output` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was collected; `--json` prints it."""

    run: str
    output: str | None
    rows: int
    ok: int
    errors: int
    """Rows whose status is not ok, those too long among them."""
    too_long: int
    missing: int
    """Planned verdicts that are not among the rows, those of failed units among them."""
    failed: int
    dropped: int
    """Planned verdicts that the sweep did without; they are not missing."""
    duplicates: int
    """Rows that are there twice. The proof admits none."""
    superseded_units: int
    """Results that were computed, but do not count: another one of the same unit was published first."""
    tasks: tuple[TaskMetrics, ...]
    ranking: tuple[int, ...]
    """See `Statistics`, of which this and what follows come, but for `failures`."""
    comparisons: tuple[Comparison, ...]
    agreements: tuple[Agreement, ...]
    problems: tuple[Problem, ...]
    failures: tuple[FailedUnit, ...]
    makers: tuple[Maker, ...]
    sweep: SweepView | None = None
    """Which tasks were dropped, when and why; None where the run has no sweep that stops early."""


def collect(
    store: Store,
    request: Request,
    *,
    progress: Progress | None = None,
    take: Take | None = None,
) -> Summary:
    """Write a run's verdicts in input order and return their statistics.

    `take` is given the rows too, table by table, the first one empty; if this raises, they are not proved.

    Raises:
        InputError: the request or the run cannot be used.
        NotComplete: verdicts are missing and `is_partial` is not set; nothing was written.
        Damaged: a file of the run is not what was written there; nothing was written.
        StoreError: the filesystem refused; what stood at `output` is untouched.
    """
    manifest = read_manifest(store)
    if request.output is not None:
        check_output(store, request.output, request.form)
        _check_form(manifest, request)
    columns = shard_columns(manifest, keep_columns=request.keep_columns)
    made = read_decisions(store, manifest)
    extent = extent_of(manifest.geometry, manifest.sweep, made)
    proof = prove(store, manifest.geometry, extent)
    if not request.is_partial:
        _require(proof, proof.missing_rows, store)
    claims = Claims(store, manifest.geometry, run=manifest.run, columns=columns)
    with contextlib.closing(claims):
        source = _source(store, manifest, claims)
        tally = Tally(source.tasks)
        with _writer(store, request, source) as writer:
            takers: list[Take] = [writer.write] if writer is not None else []
            if take is not None:
                take(source.schema.empty_table())
                takers.append(take)
            _pass(source, proof, tally, takers, progress)
            if not request.is_partial:
                _require(proof, proof.rows - proof.dropped_rows - tally.rows, store)
    return _summarise(manifest, request, proof, tally, made)


def check_output(store: Store, path: Path, form: FileFormat = "rows") -> None:
    """Check before any work that verdicts can be written to `path`.

    Raises:
        InputError: unknown ending, no such folder, no permission, or among the run's own files.
    """
    writer_for(path, form)
    check_place(path)
    inside = path.resolve().is_relative_to(store.root.resolve())
    if inside and path.resolve().parent != store.root.resolve():
        raise InputError(f"{path} is among the run's own files: pass a name outside {store.root}")


def _check_form(manifest: Manifest, request: Request) -> None:
    if request.form == "openai" and len(manifest.tasks) > 1:
        raise InputError(
            f"run {manifest.run} has {len(manifest.tasks)} tasks, and a request of an OpenAI batch has one answer: "
            "collect it as rows, or plan one model and one template"
        )


def _require(proof: Proof, missing: int, store: Store) -> None:
    """Raise where verdicts are missing."""
    if not missing:
        return
    seen = f"{missing:,} of {proof.rows - proof.dropped_rows:,} verdicts are missing"
    failed = proof.failed_rows
    if failed:
        first = proof.failures[0]
        share = "all" if failed == missing else f"{failed:,}"
        seen += f", {share} of them in failed units (first: unit {first.unit}, {_one_line(first.reason)})"
    is_over = failed == missing
    run = shlex.quote(str(store.root))
    advice = f"`fsctx retry {run}` puts them back" if is_over else f"see `fsctx status {run}`"
    raise NotComplete(f"{store.root} is not complete: {seen}; nothing was written: {advice}, or pass --partial")


def _one_line(reason: str) -> str:
    return shorten(reason, width=120, placeholder=" …")


def _source(store: Store, manifest: Manifest, claims: Claims) -> Source:
    tasks = read_tasks(store, manifest)
    columns = collected_columns(claims.schema, tasks)
    return Source(
        store=store, manifest=manifest, tasks=tasks, claims=claims, results=results_of(store, manifest), columns=columns
    )


@contextlib.contextmanager
def _writer(store: Store, request: Request, source: Source) -> Iterator[Writer | None]:
    if request.output is None:
        yield None
        return
    with writing(request.output, source.schema, store.read(names.MANIFEST), request.form) as writer:
        yield writer


def _pass(source: Source, proof: Proof, tally: Tally, takers: Sequence[Take], progress: Progress | None) -> None:
    """Go over all rows once: count them, and give them on."""
    expected = proof.rows - proof.dropped_rows - proof.missing_rows
    for parts in parts_by_window(source, proof):
        tally.add(parts)
        if parts and takers:
            rows = interleave(parts)
            for take in takers:
                take(rows)
        if progress is not None:
            progress(tally.rows, expected)


def _summarise(manifest: Manifest, request: Request, proof: Proof, tally: Tally, made: Sequence[Decision]) -> Summary:
    sweep = view_sweep(manifest, made)
    statistics = tally.statistics(last=[task.position for task in sweep.dropped] if sweep else ())
    tasks = statistics.tasks
    return Summary(
        run=manifest.run,
        output=None if request.output is None else str(request.output),
        rows=tally.rows,
        ok=sum(task.ok for task in tasks),
        errors=sum(task.errors for task in tasks),
        too_long=sum(task.too_long for task in tasks),
        missing=proof.rows - proof.dropped_rows - tally.rows,
        failed=proof.failed_rows,
        dropped=proof.dropped_rows,
        duplicates=0,
        superseded_units=proof.superseded,
        tasks=tasks,
        ranking=statistics.ranking,
        comparisons=statistics.comparisons,
        agreements=statistics.agreements,
        problems=statistics.problems,
        failures=proof.failures,
        makers=statistics.makers,
        sweep=sweep,
    )
