"""What a plan says when it is done. Pure, but for the sizes of a standing run's files."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fsctx.coordinator.plan.draft import Draft
from fsctx.coordinator.plan.inputs import Compression
from fsctx.coordinator.plan.read_delimited import DelimitedReader
from fsctx.coordinator.plan.request import LabelCount, PlanReport
from fsctx.coordinator.plan.sizing import CALLS_PER_UNIT
from fsctx.coordinator.plan.writing import MAX_LABELS, Counts, Written
from fsctx.protocol import names
from fsctx.protocol.manifest import Manifest
from fsctx.store import Store
from fsctx.templates.gold import GoldMatch

Matches = Mapping[str, GoldMatch]
"""Template → how the gold labels match its labels."""


def report_new(
    store: Store, manifest: Manifest, wanted: Draft, written: Written, matches: Matches, notes: tuple[str, ...]
) -> PlanReport:
    """Report a run that was just planned."""
    counts = written.counts
    are_used = any(planned.template.labels for planned in wanted.templates)
    labels = [
        LabelCount(label=label, n_rows=n, meaning={t: match.mapping.get(label) for t, match in matches.items()})
        for label, n in counts.labels.most_common()
        if label is not None and are_used
    ]
    return replace(
        _report(store, manifest, wanted),
        is_new=True,
        claims_bytes=written.n_bytes,
        labels=tuple(labels),
        n_without_label=counts.labels[None],
        notes=(*wanted.notes, *_count_notes(wanted, counts), *_map_notes(matches), *notes),
    )


def report_standing(store: Store, manifest: Manifest, wanted: Draft) -> PlanReport:
    """Report a run that stood already. Its labels were told when it was planned."""
    shards = (store.root / names.shard(number) for number in range(manifest.geometry.n_shards))
    return replace(_report(store, manifest, wanted), claims_bytes=sum(path.stat().st_size for path in shards))


def ttl_notes(ttl_s: float, *, advised_s: float, kind: str) -> tuple[str, ...]:
    """Tell what the time to live was chosen for, and warn of one that a shared filesystem is too slow for."""
    if ttl_s < advised_s:
        return (
            f"--ttl {ttl_s:g} is less than the {advised_s:g} s that a {kind} filesystem needs: "
            "agents that are alive may be taken for dead, which costs work",
        )
    return (f"a silent agent is given up after {ttl_s:g} s (the run is on a {kind} filesystem)",)


def _report(store: Store, manifest: Manifest, wanted: Draft) -> PlanReport:
    geometry, layout = manifest.geometry, wanted.layout
    return PlanReport(
        folder=str(store.root),
        run=manifest.run,
        is_new=False,
        rows=geometry.n_rows,
        tasks=geometry.n_tasks,
        units=geometry.n_units,
        unit_rows=geometry.unit_rows,
        claims_bytes=0,
        model_bytes=sum(model.context.size_bytes for model in wanted.models),
        metadata_operations=geometry.n_units * CALLS_PER_UNIT,
        ttl_s=manifest.ttl_s,
        columns={"id": layout.id, "claim": layout.claim, "label": layout.label},
        rungs=tuple(geometry.rows_before(end) for end in manifest.sweep.ends) if manifest.sweep else (),
    )


def _count_notes(wanted: Draft, counts: Counts) -> Iterator[str]:
    """Tell where rows may have been merged by quotes, and where labels look like none."""
    for item, n_rows in zip(wanted.inputs, counts.n_rows, strict=True):
        reader = item.reader
        if not isinstance(reader, DelimitedReader) or not reader.is_quoted:
            continue
        n_lines = item.fingerprint.n_lines
        if reader.source.compression is Compression.NONE and n_lines > n_rows + reader.n_skipped:
            yield (
                f"{reader.source}: {n_lines:,} lines gave {n_rows:,} rows: some are empty or end within quotes; "
                "if the quotes are part of the text, pass --quoting off"
            )
    if counts.n_other_labels:
        yield (
            f"column {wanted.layout.label} has more than {MAX_LABELS:,} different values, so it hardly holds labels "
            f"({counts.n_other_labels:,} rows were not looked at): pass --label-column if it is another"
        )


def _map_notes(matches: Matches) -> Iterator[str]:
    for name, match in matches.items():
        if match.unused:
            yield f"--map names labels that the input does not have: {', '.join(match.unused)} (template {name})"
