"""All that a plan reads before it writes: files, templates, models; checked, and named by one digest."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fsctx.coordinator.plan import sweeping
from fsctx.coordinator.plan.app_file import PlannedApp, read_app
from fsctx.coordinator.plan.columns import Asked, Layout, choose_columns
from fsctx.coordinator.plan.contexts import Model, find_app_models, find_models
from fsctx.coordinator.plan.inputs import Format, Source, find_sources
from fsctx.coordinator.plan.label_tokens import check_label_tokens
from fsctx.coordinator.plan.read_arrow import open_arrow
from fsctx.coordinator.plan.read_delimited import open_delimited
from fsctx.coordinator.plan.read_json import open_json
from fsctx.coordinator.plan.read_openai import OpenAiReader, is_openai
from fsctx.coordinator.plan.read_parquet import open_parquet
from fsctx.coordinator.plan.reading import Dialect, Fingerprint, Reader
from fsctx.coordinator.plan.request import DEFAULT_TEMPLATE, PlanRequest, Progress
from fsctx.coordinator.plan.sizing import SPREAD
from fsctx.errors import InputError
from fsctx.templates.checks import check_renders, used_columns
from fsctx.templates.gold import match_gold
from fsctx.templates.load import parse_template, template_source
from fsctx.templates.model import Template

MAX_NAMES = 4_096
"""Each template and each model is a file in a folder of its kind (law 8)."""

MAX_UNIT_ROWS = 1_000_000_000
"""More is no number that Parquet's writer takes, in the end."""

MAX_TTL_S = 1e9
"""Clocks and sleeps do not take much more, and JSON has no infinity."""

_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTemplate:
    """A template and its TOML text."""

    template: Template
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input file, ready to be read, and its content's fingerprint."""

    reader: Reader
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A plan that could be written."""

    inputs: tuple[Input, ...]
    layout: Layout
    templates: tuple[PlannedTemplate, ...]
    models: tuple[Model, ...]
    digest: str
    notes: tuple[str, ...]
    spread: int = SPREAD
    """So many slices at least, where there are rows enough."""
    app: PlannedApp | None = None

    @property
    def n_tasks(self) -> int:
        """Every model under every template."""
        return len(self.models) * len(self.templates)

    @property
    def n_rows_guess(self) -> int:
        """How many rows there may be; exact where all formats tell."""
        return sum(item.reader.n_rows_guess for item in self.inputs)


def draft(request: PlanRequest, *, fetch: Callable[[str], Path], progress: Progress) -> Draft:
    """Read and check everything that was asked for, cheap things first. Writes nothing."""
    check_options(request)
    app = None if request.app is None else read_app(request.app)
    templates = _templates(request) if app is None else (_stand_in(app, request),)
    sources = find_sources(request.inputs)
    inputs = tuple(_open(source, request, progress) for source in sources)
    layout = _layout(inputs, request, [t.template for t in templates])
    if request.sweep is not None:
        _check_sweep(inputs, layout, templates, n_models=len(set(request.models)))
    if app is None:
        for planned in templates:
            check_renders(planned.template, tuple(layout.extras), source=planned.text)
        models = find_models(request.models, fetch=fetch, progress=progress, base=request.base)
        if request.method == "score":
            _check_has_labels(templates)
            check_label_tokens(models, [t.template for t in templates])
    else:
        models = find_app_models(request.models, fetch=fetch, progress=progress)
    return Draft(
        inputs=inputs,
        layout=layout,
        templates=templates,
        models=models,
        digest=_digest(request, inputs, templates, models),
        notes=tuple(note for item in inputs for note in item.reader.notes),
        spread=sweeping.SPREAD if request.sweep else SPREAD,
        app=app,
    )


def check_options(request: PlanRequest) -> None:
    """Refuse options that mean nothing."""
    _check_numbers(request)
    if not request.inputs:
        raise InputError("no input was named: pass at least one file with claims")
    if "" in (*request.inputs, *request.models, *request.templates):
        raise InputError("an input, model or template has an empty name: is a variable of the shell not set?")
    if not request.models and request.app is None:
        raise InputError("no model was named: pass --model, or an application (--app)")
    if request.app is not None and request.base is not None:
        raise InputError(f"--base {request.base}: an application loads what it is given itself: leave --base out")
    if request.app is not None and (request.templates or request.method != "score"):
        raise InputError("--app: an application makes its own prompts: leave --template and --method out")
    if request.sweep not in (None, "halving"):
        raise InputError(f"sweep {request.sweep!r} is not known: pass 'halving', or None")
    if request.budget is not None and request.sweep is None:
        raise InputError(f"--budget {request.budget} bounds a sweep: pass --sweep halving too")


def _check_numbers(request: PlanRequest) -> None:
    for what, given in (("--template", request.templates), ("--model", request.models)):
        if len(set(given)) > MAX_NAMES:
            raise InputError(
                f"{what} is there {len(set(given)):,} times; a run has room for {MAX_NAMES:,} (no folder of it grows "
                "beyond that): plan several runs"
            )
    if request.unit_rows is not None and request.unit_rows < 1:
        raise InputError(f"--unit-rows {request.unit_rows}: a unit needs at least one row")
    if request.unit_rows is not None and request.unit_rows > MAX_UNIT_ROWS:
        raise InputError(f"--unit-rows {request.unit_rows}: a unit has {MAX_UNIT_ROWS:,} rows at most: pass auto")
    if request.ttl_s is not None and not 0 < request.ttl_s <= MAX_TTL_S:
        raise InputError(f"--ttl {request.ttl_s}: pass a number of seconds above 0, and no more than {MAX_TTL_S:,.0f}")


def _check_sweep(
    inputs: Sequence[Input], layout: Layout, templates: Sequence[PlannedTemplate], *, n_models: int
) -> None:
    """Refuse a sweep that could decide nothing."""
    for planned in templates:
        if not planned.template.labels:
            raise InputError(
                f"--sweep halving: template {planned.template.name!r} has no labels to be right or wrong about: "
                "leave it out, or --sweep"
            )
    if layout.label is None:
        raise InputError(
            f"--sweep halving needs gold labels to tell tasks apart, and {inputs[0].reader.source} has no column of "
            "them: name it with --label-column, or leave --sweep out"
        )
    if len(templates) * n_models < 2:
        raise InputError("--sweep halving needs several tasks to choose from: repeat --template or --model")


def _templates(request: PlanRequest) -> tuple[PlannedTemplate, ...]:
    """Read the templates, in the order given; the same one twice counts once."""
    found: dict[str, PlannedTemplate] = {}
    for ref in request.templates or (DEFAULT_TEMPLATE,):
        text = template_source(ref)
        planned = PlannedTemplate(template=parse_template(text, where=ref), text=text)
        other = found.setdefault(planned.template.name, planned)
        if other.text != text:
            raise InputError(f"two templates are named {planned.template.name!r} (one is {ref}): rename one of them")
        match_gold((), planned.template, request.gold)
    return tuple(found.values())


def _check_has_labels(templates: Sequence[PlannedTemplate]) -> None:
    for planned in templates:
        if not planned.template.labels:
            raise InputError(f"template {planned.template.name!r} has no labels to score: pass --method generate")


def _stand_in(app: PlannedApp, request: PlanRequest) -> PlannedTemplate:
    """Return what stands for an application among the templates: its name, its labels, its code as text."""
    match_gold((), app.app.template, request.gold)
    return PlannedTemplate(template=app.app.template, text=app.code.decode(errors="replace"))


def _open(source: Source, request: PlanRequest, progress: Progress) -> Input:
    fingerprint = read_fingerprint(source, progress)
    match source.format:
        case Format.PARQUET:
            reader: Reader = open_parquet(source)
        case Format.ARROW:
            reader = open_arrow(source)
        case Format.JSON:
            objects = open_json(source)
            reader = OpenAiReader(inner=objects) if is_openai(objects) else objects
        case Format.CSV | Format.TSV | Format.TEXT:
            reader = open_delimited(source, _dialect(request), fingerprint)
    return Input(reader=reader, fingerprint=fingerprint)


def _dialect(request: PlanRequest) -> Dialect:
    named = (request.id_column, request.claim_column, request.label_column)
    return Dialect(
        has_header=request.has_header, is_quoted=request.is_quoted, named=tuple(n for n in named if n is not None)
    )


def read_fingerprint(source: Source, progress: Progress) -> Fingerprint:
    """Read a file once from end to end."""
    digest = hashlib.sha256()
    n_lines = done = 0
    has_lines = source.format not in (Format.PARQUET, Format.ARROW)
    piece = b""
    with open(source.path, "rb", buffering=0) as file:
        while next_piece := file.read(_READ_BYTES):
            piece = next_piece
            digest.update(piece)
            n_lines += piece.count(b"\n") if has_lines else 0
            done += len(piece)
            progress(f"reading {source.path.name}", done, source.size_bytes)
    n_lines += not piece.endswith(b"\n")
    return Fingerprint(sha256=digest.hexdigest(), n_lines=n_lines)


def _layout(inputs: Sequence[Input], request: PlanRequest, templates: Sequence[Template]) -> Layout:
    first, *others = (item.reader for item in inputs)
    columns = dict(first.columns)
    for other in others:
        _check_agreement(first, other)
        columns = {n: k if k == other.columns[n] else pa.string() for n, k in columns.items()}
    asked = Asked(claim=request.claim_column, id=request.id_column, label=request.label_column)
    layout = choose_columns(columns, asked, where=str(first.source), sample=first.sample)
    if not request.is_lean:
        return layout
    used = {name for template in templates for name in used_columns(template)}
    kept = {name: kind for name, kind in layout.extras.items() if name in used}
    return Layout(claim=layout.claim, id=layout.id, label=layout.label, extras=kept)


def _check_agreement(first: Reader, other: Reader) -> None:
    """Refuse files whose columns differ: their rows would not mean the same."""
    lacking = [name for name in first.columns if name not in other.columns]
    added = [name for name in other.columns if name not in first.columns]
    if lacking or added:
        differences = [f"lacks {', '.join(lacking[:8])}"] * bool(lacking) + [f"adds {', '.join(added[:8])}"] * bool(
            added
        )
        raise InputError(
            f"{other.source} has other columns than {first.source} (it {' and '.join(differences)}): "
            "give all inputs the same columns, or plan them as separate runs"
        )


def _digest(
    request: PlanRequest, inputs: Sequence[Input], templates: Sequence[PlannedTemplate], models: Sequence[Model]
) -> str:
    """Return a digest of everything that was asked for; names of input files and of model folders do not count."""
    asked: dict[str, Any] = {
        "inputs": [[i.fingerprint.sha256, i.reader.source.format, i.reader.source.compression] for i in inputs],
        "templates": [[t.template.name, t.text] for t in templates],
        "models": [[m.name, m.context.digest] for m in models],
        "method": request.method,
        "columns": [request.id_column, request.claim_column, request.label_column],
        "gold": sorted(request.gold.items()),
        "unit_rows": request.unit_rows,
        "ttl_s": request.ttl_s,
        "dialect": [request.has_header, request.is_quoted],
        "is_lean": request.is_lean,
    }
    if request.sweep is not None:
        asked["sweep"] = [request.sweep, request.budget]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
