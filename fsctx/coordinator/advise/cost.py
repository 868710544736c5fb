"""What a way to spread a model costs: memory of each device, seconds of a batch. Pure.

A pass over a batch takes, on each device, the longest of computing and of moving weights, keys and values to where
that is done, what the devices of a layer tell each other, and what passes from stage to stage. It is a model of this
project's engine: labels are scored behind a prefix that is computed once, and a pipeline is empty between batches.
"""

import math
from dataclasses import dataclass

from fsctx.coordinator.advise.devices import Device
from fsctx.protocol.measured import Measured
from fsctx.protocol.shapes import ModelShape

PIECES_PER_STAGE = 4
"""Pieces that the engine cuts a batch into, for each stage of a pipeline."""

_RESERVED_GB = 1.5
"""The driver's own, the engine's libraries, fragmentation."""
_ACTIVATION_NUMBERS = 32
"""Numbers of a token that are in memory at a time, in units of the hidden size."""
_MESSAGE_S = 15e-6
"""Before the first byte of a message between devices arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a claim is, in tokens."""

    prefix: int = 150
    """Constant, computed once and kept."""
    own: int = 40
    """The claim, and the labels behind it."""
    scored: int = 8
    """Positions at which the head computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What of a device's best is reached."""

    flops_per_s: float
    bytes_per_s: float
    link_bytes_per_s: float
    layer_s: float
    number_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A way to spread a model over the devices of a node."""

    replicas: int
    tp: int
    pp: int
    batch: int
    """Claims that each replica computes at a time."""


def rates_of(device: Device, measured: Measured | None = None) -> Rates:
    """Return a device's rates: as measured, else the share of the data sheet's that engines reach by experience."""
    return Rates(
        flops_per_s=measured.flops_per_s if measured else device.half * 1e12 * 0.5,
        bytes_per_s=device.memory_gbs * 1e9 * 0.7,
        link_bytes_per_s=device.link_gbs * 1e9 * 0.6,
        layer_s=measured.layer_s if measured else 2e-4,
        number_bytes=4 if measured and measured.dtype == "float32" else 2,
    )


def memory_gb(shape: ModelShape, layout: Layout, work: Work, number_bytes: int) -> float:
    """Return what the fullest device holds: weights, the prefix' keys and values, and a batch as it passes."""
    n_layers = math.ceil(shape.n_layers / layout.pp)
    n_tables = 1 if layout.pp > 1 or shape.is_tied else 2
    weights = n_layers * shape.layer_bytes(number_bytes) + n_tables * shape.table_params * number_bytes
    prefix = n_layers * work.prefix * shape.kv_per_token / layout.tp
    rows = math.ceil(layout.batch / _pieces(layout))
    kv = rows * (work.prefix + work.own) * shape.kv_per_token / layout.tp
    activations = rows * work.own * (_ACTIVATION_NUMBERS * shape.hidden + 2 * shape.intermediate / layout.tp)
    logits = 2 * layout.batch * work.scored * shape.vocab * 4  # in float32, and once more while they are summed up
    return (weights / layout.tp + (prefix + kv + activations) * number_bytes + logits) / 1e9 + _RESERVED_GB


def batch_s(shape: ModelShape, layout: Layout, work: Work, rates: Rates) -> float:
    """Return how long a replica takes for a batch."""
    pieces = _pieces(layout)
    rows = layout.batch / pieces
    n_layers = math.ceil(shape.n_layers / layout.pp)
    stage_s = n_layers * _layer_s(shape, layout.tp, rows, work, rates)
    last_s = stage_s + _head_s(shape, layout.tp, rows, work, rates)
    hop_s = 0.0
    if layout.pp > 1:
        hop_s = _MESSAGE_S + rows * work.own * shape.hidden * rates.number_bytes / rates.link_bytes_per_s
    return (layout.pp - 1) * (stage_s + hop_s) + pieces * last_s


def _layer_s(shape: ModelShape, tp: int, rows: float, work: Work, rates: Rates) -> float:
    n_tokens, n_seen = rows * work.own, work.prefix + work.own / 2
    compute_s = n_tokens * shape.layer_flops(1, round(n_seen)) / tp / rates.flops_per_s
    kv = rows * (work.prefix + work.own) * shape.kv_per_token * rates.number_bytes
    move_s = (shape.layer_bytes(rates.number_bytes) + kv) / tp / rates.bytes_per_s
    return max(compute_s, move_s) + rates.layer_s + 2 * _reduce_s(n_tokens * shape.hidden, tp, rates)


def _head_s(shape: ModelShape, tp: int, rows: float, work: Work, rates: Rates) -> float:
    compute_s = 2.0 * rows * work.scored * shape.table_params / tp / rates.flops_per_s
    return max(compute_s, shape.table_params * rates.number_bytes / tp / rates.bytes_per_s)


def _reduce_s(numbers: float, tp: int, rates: Rates) -> float:
    """Return how long devices take to sum up what each of them has, in a ring."""
    if tp == 1:
        return 0.0
    moved = 2 * (tp - 1) / tp * numbers * rates.number_bytes
    return 2 * (tp - 1) * _MESSAGE_S + moved / rates.link_bytes_per_s


def _pieces(layout: Layout) -> int:
    return min(PIECES_PER_STAGE * layout.pp, layout.batch) if layout.pp > 1 else 1
