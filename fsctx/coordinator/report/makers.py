"""Rows by device, with the speed at which they were computed. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fsctx.coordinator.collect.makers import Maker
from fsctx.coordinator.progress import AgentView


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """What all devices of one name did."""

    device: str
    agents: int
    rows: int
    rows_per_s: float | None
    """Per second of inference of one device; None where no agent told how long it inferred."""


def by_device(makers: Sequence[Maker], views: Iterable[AgentView]) -> list[DeviceLine]:
    """Return the devices, most rows first."""
    infer_s = {view.agent: view.ledger.infer_s for view in views}
    lines = (_line(device, makers, infer_s) for device in sorted({maker.device for maker in makers}))
    return sorted(lines, key=lambda line: -line.rows)


def _line(device: str, makers: Sequence[Maker], infer_s: dict[str, float]) -> DeviceLine:
    own = [maker for maker in makers if maker.device == device]
    rows, agents = sum(maker.rows for maker in own), {maker.agent for maker in own}
    busy_s = sum(infer_s.get(agent, 0.0) for agent in agents)
    return DeviceLine(
        device=device or "unknown", agents=len(agents), rows=rows, rows_per_s=rows / busy_s if busy_s else None
    )
