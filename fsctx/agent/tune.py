"""A short measured run on this device, by which `fsctx advise` calibrates what it reckons."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fsctx.agent.batching import batches
from fsctx.agent.bystander import stand_by
from fsctx.agent.engines.base import Bound, Encoded, Model, Row
from fsctx.agent.options import AgentOptions
from fsctx.agent.precision import compare, in_words
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.slices import Slices
from fsctx.errors import EngineError, InputError, Misconfigured, Unfit
from fsctx.protocol.measured import Half, Measured
from fsctx.protocol.shapes import ModelShape, shape_of
from fsctx.protocol.verdicts import Verdict
from fsctx.store import PosixStore

_MOST_ROWS = 256
_CONFIG = "config.json"
HALF = "bfloat16"
"""float16 is no faster on any CPU, and overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Some passes over the model."""

    passes: int
    flops: float
    seconds: float
    verdicts: tuple[Verdict, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Its rate."""
        return len(self.verdicts) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    model: Model
    bound: Bound
    shape: ModelShape
    engine: str


def tune(folder: Path, options: AgentOptions, *, say: Callable[[str], None]) -> Measured:
    """Load the first model of a run and time claims of the run, one alone and in full batches. Takes no lease.

    On a CPU in half precision too, where no precision was asked for: only some processors are quicker in it.

    Raises:
        InputError: the run has no model.
        Unfit, Misconfigured: see `Engine.load` and `Model.bind`.
    """
    run = read_run(PosixStore(folder))
    context = run.contexts[run.manifest.tasks[0].context]
    if context.kind == "fake" or run.manifest.app is not None:
        planned = "the fake model" if run.manifest.app is None else "an application"
        raise InputError(f"{folder} was planned with {planned}, which tells nothing of a device: plan with a model")
    measured, whole = _measure(run, options, say)
    if options.dtype is not None or measured.device != "cpu":
        return measured
    try:
        half = _halve(run, dataclasses.replace(options, dtype=HALF), whole, say)
    except (EngineError, Misconfigured, Unfit) as error:
        say(f"{HALF} is no choice here: {error}")
        return measured
    say(in_words(half))
    return dataclasses.replace(measured, half=half)


def _measure(run: RunFiles, options: AgentOptions, say: Callable[[str], None]) -> tuple[Measured, Trial]:
    with _loaded(run, options, say) as loaded:
        alone, many = measure(
            loaded.bound, _encoded(run, loaded.bound), loaded.shape, most_tokens=loaded.model.batch_tokens
        )
        flops_per_s, layer_s = calibrate(alone, many, n_layers=loaded.shape.n_layers)
        measured = Measured(
            device=loaded.model.device,
            engine=loaded.engine,
            dtype=loaded.model.dtype,
            model=run.contexts[run.manifest.tasks[0].context].name,
            flops_per_s=flops_per_s,
            layer_s=layer_s,
            rows_per_s=many.rows_per_s,
        )
        return measured, many


def _halve(run: RunFiles, options: AgentOptions, whole: Trial, say: Callable[[str], None]) -> Half:
    """Compute the same claims in half precision."""
    with _loaded(run, options, say) as loaded:
        full = list(batches(_encoded(run, loaded.bound), loaded.model.batch_tokens))
        loaded.bound.infer(full[0])  # as before: it does not count
        half = _trial(loaded.bound, full, loaded.shape, most_s=whole.seconds)
        return compare(HALF, whole.verdicts, half.verdicts, times=half.rows_per_s / whole.rows_per_s)


@contextlib.contextmanager
def _loaded(run: RunFiles, options: AgentOptions, say: Callable[[str], None]) -> Iterator[_Loaded]:
    """Yield the first task's model, and free the device afterwards."""
    residency = stand_by(run, options, say=say)
    try:
        bound, changed = residency.ensure(0, lambda _: None)
        assert residency.model is not None
        assert changed.fetched is not None
        config = changed.fetched.path / _CONFIG
        shape = shape_of(json.loads(config.read_text(encoding="utf-8")), where=str(config))
        yield _Loaded(model=residency.model, bound=bound, shape=shape, engine=residency.engine)
    finally:
        residency.drop()


def _encoded(run: RunFiles, bound: Bound) -> list[Encoded]:
    encoded = [row for row in bound.encode(list(islice(_rows(run), _MOST_ROWS))) if row.refused is None]
    if not encoded:
        raise InputError(f"none of the first claims of {run.store.root} can be computed: plan with others")
    return encoded


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


def _trial(bound: Bound, full: Sequence[list[Encoded]], shape: ModelShape, *, most_s: float = math.inf) -> Trial:
    """Compute batches, of which none is begun after `most_s`."""
    done: list[tuple[Encoded, Verdict]] = []
    passes, began_s, seconds = 0, time.perf_counter(), 0.0
    for batch in full:
        done += zip(batch, bound.infer(batch), strict=True)
        passes, seconds = passes + 1, time.perf_counter() - began_s
        if seconds > most_s:
            break
    flops = sum(shape.n_layers * shape.layer_flops(row.n_tokens, verdict.input_tokens) for row, verdict in done)
    verdicts = tuple(verdict for _, verdict in done)
    return Trial(passes=passes, flops=flops, seconds=max(seconds, 1e-9), verdicts=verdicts)


def _rows(run: RunFiles) -> Iterator[Row]:
    geometry = run.manifest.geometry
    with contextlib.closing(Slices(run.store, run=run.manifest.run)) as slices:
        for number in range(geometry.n_slices):
            place = geometry.place(geometry.unit_of(task=0, slice_number=number))
            yield from (row for row in slices.read(place, run.columns(0)) if row.claim)
