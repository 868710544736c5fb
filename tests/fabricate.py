"""Whole run folders for tests, made without planning or agents: manifest, shards, leases, results, sessions.

    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=4)
    finish_unit(run, 0)
    fail_unit(run, 1, reason="the engine died")

Contents follow from row numbers alone, so that tests can say what they expect: see `gold_of` and `verdict_of`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fabricate_parts import claims_table, template_source, write_shards

from fsctx.protocol import agents, codec, failures, leases, names, results, verdicts
from fsctx.protocol.agents import AgentRecord, AgentState, Ledger, Session
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.manifest import Context, InputFile, Manifest, Task
from fsctx.protocol.names import LeaseId
from fsctx.protocol.processes import Process
from fsctx.store import PosixStore
from fsctx.store.system import System

LABELS = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
GOLD = ("SUPPORTS", "REFUTES", "NEI")
"""Gold labels as given; the i-th means the i-th of `LABELS`."""

WRONG_EVERY = 4
"""Rows whose number is a multiple of this get a wrong verdict."""


class Undurable(System):
    """Creates without fsync(2): no test outlives a power cut, and a disk takes milliseconds for each."""

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        """See `System.create`."""
        super().create(path, content, is_durable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricatedRun:
    """A run folder and what is known of it."""

    store: PosixStore
    manifest: Manifest
    labels: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The run folder."""
        return self.store.root

    @property
    def geometry(self) -> Geometry:
        """Where the units are."""
        return self.manifest.geometry


def fabricate(
    folder: Path,
    *,
    n_rows: int = 10,
    unit_rows: int = 4,
    slices_per_shard: int = 2,
    models: Sequence[str] = ("tiny",),
    templates: Sequence[str] = ("fever",),
    labels: Sequence[str] = LABELS,
    gold: Sequence[str | None] | None = GOLD,
    ids: Sequence[Any] | pa.Array | None = None,
    claims: Sequence[str | None] | pa.Array | None = None,
    columns: dict[str, Sequence[Any] | pa.Array] | None = None,
) -> FabricatedRun:
    """Make a planned run in which nothing was done yet.

    `gold` repeats over the rows (None: the input has no labels); `columns` are the input's other columns.
    """
    geometry = Geometry(
        n_rows=n_rows,
        unit_rows=unit_rows,
        slices_per_shard=slices_per_shard,
        n_tasks=len(models) * len(templates),
    )
    manifest = _manifest(
        folder.name,
        geometry,
        tasks=tuple(
            Task(context=_digest(model), model=model, template=template, method="score")
            for model in models
            for template in templates
        ),
        mapping=dict(zip(GOLD, labels, strict=False)),
        has=(gold is not None, ids is not None),
        columns=tuple(columns or ()),
    )
    run = FabricatedRun(store=PosixStore(folder, system=Undurable()), manifest=manifest, labels=tuple(labels))
    _make_folders(run)
    table = claims_table(n_rows, gold=gold, ids=ids, claims=claims, columns=columns or {})
    write_shards(folder, geometry, table)
    _write_records(run, models, templates)
    return run


def gold_of(run: FabricatedRun, row: int) -> str:
    """Return the label that a row's gold label means, for the default gold labels."""
    return run.labels[row % len(GOLD) % len(run.labels)]


def verdict_of(run: FabricatedRun, row: int) -> str:
    """Return the verdict that `finish_unit` gives a row by itself."""
    wrong = row % WRONG_EVERY == 0
    return run.labels[(row % len(GOLD) + wrong) % len(run.labels)]


def verdict_table(
    run: FabricatedRun,
    rows: Sequence[int] | np.ndarray[Any, Any],
    *,
    generation: int = 0,
    agent: str = "agent-1",
    host: str = "host-1",
    device: str = "NVIDIA A10",
) -> pa.Table:
    """Return verdicts for rows in the order given, one each, all of status ok."""
    number = np.asarray(rows, dtype=np.int64)
    choice = (number % len(GOLD) + (number % WRONG_EVERY == 0)) % len(run.labels)
    n = len(number)
    scores = {
        verdicts.SCORE + label: pa.array(np.where(choice == i, -0.25, -1.5 - i), pa.float32())
        for i, label in enumerate(run.labels)
    }
    columns = {
        "row": pa.array(number),
        "verdict": pa.array(run.labels, pa.string()).take(pa.array(choice)),
        **scores,
        "text": pa.nulls(n, pa.string()),
        "status": pa.repeat("ok", n),
        "error": pa.nulls(n, pa.string()),
        "input_tokens": pa.array(30 + number % 7, pa.int32()),
        "output_tokens": pa.array(np.zeros(n), pa.int32()),
        "generation": pa.array(np.full(n, generation), pa.int32()),
        "agent": pa.repeat(agent, n),
        "host": pa.repeat(host, n),
        "device": pa.repeat(device, n),
        "engine": pa.repeat("fake 1.0", n),
    }
    return pa.table(columns, schema=verdicts.schema(run.labels))


def finish_unit(
    run: FabricatedRun,
    unit: int,
    *,
    generation: int = 0,
    rows: Sequence[int] | None = None,
    changed: dict[int, dict[str, Any]] | None = None,
    **origin: str,
) -> None:
    """Lease a unit, compute it, publish it.

    `rows` instead of the unit's own make a damaged result; `changed` sets columns of some rows (by row number);
    `origin` is `agent`, `host`, `device`.
    """
    place = run.geometry.place(unit)
    own = range(place.first_row, place.first_row + place.n_rows)
    table = verdict_table(run, own if rows is None else rows, generation=generation, **origin)
    content = verdicts.to_parquet(_change(table, changed or {}), run=run.manifest.run, unit=unit)
    lease_unit(run, unit, generation=generation, agent=origin.get("agent", "agent-1"))
    results.write(run.store, LeaseId(unit, generation), content)
    results.publish(run.store, LeaseId(unit, generation))


def finish_all(run: FabricatedRun, *, but: Iterable[int] = ()) -> None:
    """Finish every unit save some."""
    left = set(range(run.geometry.n_units)) - set(but)
    for unit in sorted(left):
        finish_unit(run, unit)


def lease_unit(run: FabricatedRun, unit: int, *, generation: int = 0, agent: str = "agent-1") -> None:
    """Take a generation of a unit's lease."""
    leases.take(run.store, LeaseId(unit, generation), agent)


def fail_unit(run: FabricatedRun, unit: int, *, reason: str = "the engine died", generation: int = 0) -> None:
    """List a unit as given up."""
    lease_unit(run, unit, generation=generation)
    failure = failures.Failure(unit=unit, generation=generation, reason=reason, agent="agent-1", host="host-1")
    failures.record_failure(run.store, failure)


def lose_race(run: FabricatedRun, unit: int, *, generation: int) -> None:
    """Leave the file of a holder whose result was computed, but not published: somebody was first."""
    place = run.geometry.place(unit)
    table = verdict_table(run, range(place.first_row, place.first_row + place.n_rows), generation=generation)
    content = verdicts.to_parquet(table, run=run.manifest.run, unit=unit)
    run.store.replace(names.result(bucket_of(unit), LeaseId(unit, generation)), content)


def add_agent(
    run: FabricatedRun,
    agent: str = "agent-1",
    *,
    state: AgentState = AgentState.RUNNING,
    host: str = "host-1",
    device: str = "NVIDIA A10",
    counter: int = 1,
    process: Process | None = None,
    ledger: Ledger | None = None,
    **session: Any,
) -> None:
    """Announce an agent: its record and its session (whose other fields are `session`)."""
    record = AgentRecord(
        agent=agent,
        process=process or Process(host=host, boot_id="boot-1", pid=4242, started_ticks=1),
        started="2026-11-30T00:00:00Z",
        version="0.1.0",
        python="3.11.2",
        engine="fake 1.0",
        device=device,
        cores=2,
        memory_bytes=2**34,
    )
    beat = Session(
        agent=agent,
        counter=counter,
        progress=0,
        state=state,
        host=host,
        device=device,
        ledger=ledger or Ledger(),
        **session,
    )
    run.store.make_folder(f"{names.AGENTS}/{agent}")
    run.store.replace(names.agent_record(agent), codec.encode(record))
    run.store.rewrite(names.session(agent), agents.encode_session(beat))


def _digest(model: str) -> str:
    return hashlib.sha256(model.encode()).hexdigest()


def _manifest(
    run: str,
    geometry: Geometry,
    *,
    tasks: tuple[Task, ...],
    mapping: dict[str, str],
    has: tuple[bool, bool],
    columns: tuple[str, ...],
) -> Manifest:
    return Manifest(
        run=run,
        version="0.1.0",
        created="2026-11-30T00:00:00Z",
        plan="plan-digest",
        geometry=geometry,
        tasks=tasks,
        gold={task.template: mapping for task in tasks},
        has_labels=has[0],
        has_ids=has[1],
        columns=columns,
        inputs=(InputFile(path="claims.jsonl", size_bytes=1000, sha256="0" * 64),),
        ttl_s=15.0,
    )


def _make_folders(run: FabricatedRun) -> None:
    for folder in (names.CONTEXTS, names.TEMPLATES, names.UNITS, names.AGENTS, names.CONTROL):
        run.store.make_folder(folder)
    for kind in names.BUCKETED:
        for bucket in range(run.geometry.n_buckets):
            run.store.make_folder(names.bucket_folder(kind, bucket))


def _write_records(run: FabricatedRun, models: Sequence[str], templates: Sequence[str]) -> None:
    for model in models:
        digest = _digest(model)
        context = Context(digest=digest, kind="fake", name=model, origin="/models", files=(), chunk_bytes=2**25)
        run.store.replace(names.context(digest), codec.encode_pretty(context))
    for template in templates:
        run.store.replace(names.template(template), template_source(template, run.labels).encode())
    run.store.replace(names.MANIFEST, codec.encode_pretty(run.manifest))


def _change(table: pa.Table, changed: dict[int, dict[str, Any]]) -> pa.Table:
    """Set columns of some rows, by row number."""
    records = table.to_pylist() if changed else []
    for record in records:
        record.update(changed.get(record["row"], {}))
    return pa.Table.from_pylist(records, schema=table.schema) if changed else table
