"""A short measured run on this device, by which `fsctx advise` calibrates what it reckons."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fsctx.agent.batching import batches
from fsctx.agent.bystander import stand_by
from fsctx.agent.engines.base import Bound, Encoded, Row
from fsctx.agent.options import AgentOptions
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.slices import Slices
from fsctx.errors import InputError
from fsctx.protocol.measured import Measured
from fsctx.protocol.shapes import ModelShape, shape_of
from fsctx.store import PosixStore

_MOST_ROWS = 256
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Some passes over the model."""

    passes: int
    flops: float
    seconds: float


def tune(folder: Path, options: AgentOptions, *, say: Callable[[str], None]) -> Measured:
    """Load the first model of a run and time claims of the run, one alone and in full batches. Takes no lease.

    Raises:
        InputError: the run has no model.
        Unfit, Misconfigured: see `Engine.load` and `Model.bind`.
    """
    run = read_run(PosixStore(folder))
    task = run.manifest.tasks[0]
    context = run.contexts[task.context]
    if context.kind == "fake" or run.manifest.app is not None:
        planned = "the fake model" if run.manifest.app is None else "an application"
        raise InputError(f"{folder} was planned with {planned}, which tells nothing of a device: plan with a model")
    residency = stand_by(run, options, say=say)
    try:
        bound, changed = residency.ensure(0, lambda _: None)
        model = residency.model
        assert model is not None
        assert changed.fetched is not None
        files = changed.fetched.path
        shape = shape_of(json.loads((files / _CONFIG).read_text(encoding="utf-8")), where=str(files / _CONFIG))
        encoded = [row for row in bound.encode(list(islice(_rows(run), _MOST_ROWS))) if row.refused is None]
        if not encoded:
            raise InputError(f"none of the first claims of {folder} can be computed: plan with others")
        alone, many = measure(bound, encoded, shape, most_tokens=model.batch_tokens)
        flops_per_s, layer_s = calibrate(alone, many, n_layers=shape.n_layers)
        return Measured(
            device=model.device,
            engine=residency.engine,
            dtype=model.dtype,
            model=context.name,
            flops_per_s=flops_per_s,
            layer_s=layer_s,
            rows_per_s=len(encoded) / many.seconds,
        )
    finally:
        residency.drop()


def measure(bound: Bound, encoded: Sequence[Encoded], shape: ModelShape, *, most_tokens: int) -> tuple[Trial, Trial]:
    """Time the shortest row alone, then all in batches; each after a pass that does not count."""
    alone, full = [[min(encoded, key=lambda row: row.n_tokens)]], list(batches(encoded, most_tokens))
    bound.infer(full[0])
    bound.infer(alone[0])
    return _trial(bound, alone, shape), _trial(bound, full, shape)


def calibrate(alone: Trial, many: Trial, *, n_layers: int) -> tuple[float, float]:
    """Return operations a second, and the seconds of a layer that computes nothing, of which both trials are made."""
    flops = many.flops - many.passes * alone.flops
    seconds = many.seconds - many.passes * alone.seconds
    if flops <= 0 or seconds <= 0:  # batches hold little more than a row: nothing is known of the layers
        return many.flops / many.seconds, 0.0
    layer_s = (alone.seconds - alone.flops * seconds / flops) / n_layers
    return (flops / seconds, layer_s) if layer_s > 0 else (many.flops / many.seconds, 0.0)


def _trial(bound: Bound, full: Sequence[list[Encoded]], shape: ModelShape) -> Trial:
    flops = 0.0
    began_s = time.perf_counter()
    done = [bound.infer(batch) for batch in full]
    seconds = time.perf_counter() - began_s
    for batch, verdicts in zip(full, done, strict=True):
        for row, verdict in zip(batch, verdicts, strict=True):
            flops += shape.n_layers * shape.layer_flops(row.n_tokens, verdict.input_tokens)
    return Trial(passes=len(full), flops=flops, seconds=max(seconds, 1e-9))


def _rows(run: RunFiles) -> Iterator[Row]:
    geometry = run.manifest.geometry
    with contextlib.closing(Slices(run.store, run=run.manifest.run)) as slices:
        for number in range(geometry.n_slices):
            place = geometry.place(geometry.unit_of(task=0, slice_number=number))
            yield from (row for row in slices.read(place, run.columns(0)) if row.claim)
