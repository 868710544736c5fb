"""Every way to spread a model over a node, and the one to take. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fsctx.coordinator.advise.cost import Layout, Rates, Work, batch_s, memory_gb
from fsctx.coordinator.advise.devices import Device
from fsctx.errors import InputError
from fsctx.protocol.shapes import ModelShape

Objective = Literal["throughput", "latency"]

MOST_CLAIMS = 1024
"""The largest batch that is considered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to spread a model, and what is to be expected of it."""

    layout: Layout
    memory_gb: float
    """Of the fullest device."""
    latency_s: float
    """From a batch's begin to its verdicts."""
    rows_per_s: float
    """Of all replicas together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is possible and what to take."""

    options: tuple[Option, ...]
    front: tuple[Option, ...]
    """Those that no other beats in latency and throughput both; the quickest first."""
    choice: Option
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Devices of one kind in one node."""

    device: Device
    count: int
    rates: Rates


def advise(shape: ModelShape, node: Node, *, objective: Objective, work: Work, sla_s: float | None = None) -> Advice:
    """Return all ways that fit, and the best by an objective among those within `sla_s`.

    Raises:
        InputError: the model fits in no way, or in none that is quick enough.
    """
    options = tuple(_options(shape, node, work))
    if not options:
        raise InputError(_does_not_fit(shape, node, work))
    allowed = [option for option in options if sla_s is None or option.latency_s <= sla_s]
    if not allowed:
        least_s = min(option.latency_s for option in options)
        raise InputError(f"no way is as quick as --sla-ms asks: the quickest takes {least_s * 1e3:.0f} ms: allow that")
    choice = max(allowed, key=_by_latency if objective == "latency" else _by_throughput)
    return Advice(options=options, front=pareto(options), choice=choice, why=_why(choice, options, objective))


def pareto(options: Sequence[Option]) -> tuple[Option, ...]:
    """Return those that no other beats in both, the quickest first."""
    front: list[Option] = []
    for option in sorted(options, key=_by_latency, reverse=True):
        if not front or option.rows_per_s > front[-1].rows_per_s:
            front.append(option)
    return tuple(front)


def splits(shape: ModelShape, count: int) -> Iterator[tuple[int, int]]:
    """Return the (tp, pp) that a model allows on so many devices: heads and layers are whole."""
    for tp in range(1, count + 1):
        if shape.n_heads % tp == 0 and shape.n_kv_heads % tp == 0:
            yield from ((tp, pp) for pp in range(1, min(count // tp, shape.n_layers) + 1))


def _options(shape: ModelShape, node: Node, work: Work) -> Iterator[Option]:
    for tp, pp in splits(shape, node.count):
        batch = 1
        while batch <= MOST_CLAIMS:
            layout = Layout(replicas=node.count // (tp * pp), tp=tp, pp=pp, batch=batch)
            held_gb = memory_gb(shape, layout, work, node.rates.number_bytes)
            if held_gb > node.device.memory_gb:
                break
            seconds = batch_s(shape, layout, work, node.rates)
            rows_per_s = layout.replicas * batch / seconds
            yield Option(layout=layout, memory_gb=held_gb, latency_s=seconds, rows_per_s=rows_per_s)
            batch *= 2


def _by_throughput(option: Option) -> tuple[float, float]:
    return option.rows_per_s, -option.latency_s


def _by_latency(option: Option) -> tuple[float, float]:
    return -option.latency_s, option.rows_per_s


def _why(choice: Option, options: Sequence[Option], objective: Objective) -> str:
    layout, fits_one = choice.layout, any(option.layout.tp * option.layout.pp == 1 for option in options)
    if layout.tp * layout.pp == 1:
        return "the model fits one device, and devices that need not talk to each other do the most work"
    need = "the model does not fit one device" if not fits_one else f"it gives the best {objective} of all ways"
    match layout.tp > 1, layout.pp > 1:
        case True, True:
            how = "tensor parallelism makes a batch quicker, and stages keep the talk between devices low"
        case True, False:
            how = "all devices work on the same layer, so that a batch takes the least time"
        case _:
            how = "stages pass little on, so that the devices are busy with computing"
    return f"{need}; {how}"


def _does_not_fit(shape: ModelShape, node: Node, work: Work) -> str:
    least = min(
        memory_gb(shape, Layout(replicas=1, tp=tp, pp=pp, batch=1), work, node.rates.number_bytes)
        for tp, pp in splits(shape, node.count)
    )
    return (
        f"{node.count} {node.device.name} do not hold a model of {shape.params / 1e9:.1f} billion parameters: each "
        f"would need {least:.1f} GB and has {node.device.memory_gb:g}: take more or larger devices"
    )
