"""An advice in words and as JSON."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fsctx.coordinator.advise.advise import Advice, Node, Option
from fsctx.protocol.shapes import ModelShape

_HEAD = f"{'replicas':>8} {'tp':>3} {'pp':>3} {'claims':>7} {'memory GB':>10} {'latency ms':>11} {'claims/s':>9}"


def table(advice: Advice, shape: ModelShape, node: Node) -> Iterator[str]:
    """Yield the Pareto front, the choice, and what to type."""
    device = node.device
    yield f"{shape.params / 1e9:.2f} billion parameters on {node.count} {device.name} ({device.memory_gb:g} GB)"
    yield f"{len(advice.options)} ways fit; those that no other beats in latency and throughput both:"
    yield ""
    yield _HEAD
    for option in advice.front:
        yield _line(option) + ("  ← the choice" if option == advice.choice else "")
    layout = advice.choice.layout
    yield ""
    how = f"{layout.replicas} × tp {layout.tp} × pp {layout.pp}, {layout.batch} claims at a time"
    yield f"The choice: {how}: {advice.why}."
    many = " --device all" if layout.replicas > 1 else ""
    yield f"To run it: fsctx agent RUN --tp {layout.tp} --pp {layout.pp}{many}"


def to_json(advice: Advice, shape: ModelShape, node: Node) -> dict[str, Any]:
    """Return all of it."""
    found: dict[str, Any] = msgspec.to_builtins(advice)
    return {"params": shape.params, "device": msgspec.to_builtins(node.device), "count": node.count, **found}


def _line(option: Option) -> str:
    layout = option.layout
    return (
        f"{layout.replicas:>8} {layout.tp:>3} {layout.pp:>3} {layout.batch:>7} {option.memory_gb:>10.1f} "
        f"{option.latency_s * 1e3:>11.1f} {option.rows_per_s:>9.1f}"
    )
