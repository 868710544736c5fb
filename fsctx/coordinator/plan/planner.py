"""Plan: read and check everything, write the claims, and last of all say that the run is whole."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fsctx import __version__
from fsctx.coordinator.plan.advice import Advice, advise
from fsctx.coordinator.plan.draft import Draft, Input, check_options, draft
from fsctx.coordinator.plan.hub import fetch_model
from fsctx.coordinator.plan.report import Matches, report_new, report_standing, ttl_notes
from fsctx.coordinator.plan.request import PlanReport, PlanRequest, Progress
from fsctx.coordinator.plan.standing import check_same_plan
from fsctx.coordinator.plan.sweeping import divide
from fsctx.coordinator.plan.workspace import State, Workspace, look, occupied
from fsctx.coordinator.plan.writing import Written, write_claims
from fsctx.errors import InputError
from fsctx.protocol import codec, names
from fsctx.protocol.geometry import MAX_UNCOMPACTED_BUCKETS, Geometry
from fsctx.protocol.manifest import SWEEP_SCHEMA, InputFile, Manifest, Task, read_manifest
from fsctx.protocol.sweep import Sweep
from fsctx.store import PosixStore, Store
from fsctx.store.mounts import mounts
from fsctx.templates.gold import match_gold


def plan(request: PlanRequest, *, progress: Progress, fetch: Callable[[str], Path] = fetch_model) -> PlanReport:
    """Plan a run: afterwards the folder is a whole run, or as it was before.

    The same plan in its finished run changes nothing and succeeds. After an interruption
    the same call again removes what is left and completes. `fetch` loads a model by its hub name.

    Raises:
        InputError: something that was passed cannot be used, or the folder holds something else.
        NoSpace: disk or quota is full.
    """
    check_options(request)
    store = PosixStore(request.run)
    found = look(request.run, progress)
    standing = read_manifest(store) if found.state is State.FINISHED else None
    advice = advise(request.run, mounts(), is_new=standing is None)
    wanted = draft(request, fetch=fetch, progress=progress)
    if standing is None:
        with occupied(request.run, found.dead) as workspace:
            return _write_run(workspace, request, wanted, advice, progress)
    check_same_plan(store, standing, request, wanted)
    store.remove(names.PLANNING)
    return report_standing(store, standing, wanted)


def _write_run(
    workspace: Workspace, request: PlanRequest, wanted: Draft, advice: Advice, progress: Progress
) -> PlanReport:
    workspace.clear_shards()
    run = f"{request.run.absolute().name}-{secrets.token_hex(4)}"
    written = write_claims(workspace, wanted, request.unit_rows, progress, run=run)
    seen = [label for label in written.counts.labels if label is not None]
    matches = {t.template.name: match_gold(seen, t.template, request.gold) for t in wanted.templates}
    geometry, sweep = _divide(request, written, matches) if request.sweep else (written.geometry, None)
    _check_unchanged(wanted.inputs)
    workspace.check_ours()
    _write_records(workspace.store, wanted)
    _make_folders(workspace.store, geometry.n_buckets, progress)
    if sweep is not None:
        workspace.store.make_folder(names.SWEEP)
    manifest = replace(_manifest(request, wanted, geometry, matches, advice, run=run), sweep=sweep)
    workspace.finish(codec.encode_pretty(manifest, schema=SWEEP_SCHEMA if manifest.sweep else 1))
    notes = (*ttl_notes(manifest.ttl_s, advised_s=advice.ttl_s, kind=advice.kind), *advice.notes)
    return report_new(workspace.store, manifest, wanted, written, matches, notes)


def _check_unchanged(inputs: Sequence[Input]) -> None:
    """Refuse an input that was written to while it was read."""
    for item in inputs:
        source = item.reader.source
        seen = source.path.stat()
        if (seen.st_size, seen.st_mtime_ns) != (source.size_bytes, source.mtime_ns):
            raise InputError(f"{source} changed while it was read: plan again when nobody writes to it")


def _write_records(store: Store, wanted: Draft) -> None:
    store.make_folder(names.CONTEXTS)
    store.make_folder(names.TEMPLATES)
    for model in wanted.models:
        store.replace(names.context(model.context.digest), codec.encode(model.context))
    if wanted.app is not None:
        store.make_folder(names.APPS)
        store.replace(names.app(wanted.app.app.sha256), wanted.app.code)
        return
    for planned in wanted.templates:
        store.replace(names.template(planned.template.name), planned.text.encode())


def _make_folders(store: Store, n_buckets: int, progress: Progress) -> None:
    for folder in (names.AGENTS, names.CONTROL, names.LOGS, names.SUBMISSIONS):
        store.make_folder(folder)
    for bucket in range(n_buckets):
        for kind in names.BUCKETED:
            store.make_folder(names.bucket_folder(kind, bucket))
        progress("making folders", bucket + 1, n_buckets)


def _manifest(
    request: PlanRequest, wanted: Draft, geometry: Geometry, matches: Matches, advice: Advice, *, run: str
) -> Manifest:
    return Manifest(
        run=run,
        version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=wanted.digest,
        geometry=geometry,
        tasks=tuple(_tasks(request, wanted)),
        gold={name: match.mapping for name, match in matches.items()},
        has_labels=wanted.layout.label is not None,
        has_ids=wanted.layout.id is not None,
        columns=tuple(wanted.layout.extras),
        inputs=tuple(_input_file(item) for item in wanted.inputs),
        ttl_s=request.ttl_s or advice.ttl_s,
        publish=advice.publish,
        app=None if wanted.app is None else wanted.app.app,
        compacts=geometry.n_buckets > MAX_UNCOMPACTED_BUCKETS,
    )


def _divide(request: PlanRequest, written: Written, matches: Matches) -> tuple[Geometry, Sweep]:
    """Divide the claims of a sweep, by those that every template can be right or wrong about."""
    labels = written.counts.labels
    n_known = {t: sum(labels[gold] for gold in match.mapping) for t, match in matches.items()}
    for template, n in n_known.items():
        if not n:
            seen = sorted(label for label in labels if label is not None)
            raise InputError(
                f"--sweep halving needs gold labels that template {template} knows, and it knows none of "
                f"{', '.join(seen[:8]) or 'no label at all'}: pass --map GOLD=LABEL, or leave --sweep out"
            )
    return divide(written.geometry, n_labelled=min(n_known.values()), budget=request.budget)


def _tasks(request: PlanRequest, wanted: Draft) -> Iterable[Task]:
    """List the tasks: model by model, so that one model's units are neighbours."""
    for model in wanted.models:
        for planned in wanted.templates:
            yield Task(
                context=model.context.digest,
                model=model.name,
                template=planned.template.name,
                method=request.method if wanted.app is None else "app",
            )


def _input_file(item: Input) -> InputFile:
    source = item.reader.source
    return InputFile(path=str(source.path.absolute()), size_bytes=source.size_bytes, sha256=item.fingerprint.sha256)
