"""How fast a machine that multiplies matrices at its best rate, and does nothing else, would score claims."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.agent.engines.hf.engine import HfModel
from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.score import ScoreBound
from fsctx.agent.engines.hf.tree import arrange
from fsctx.templates.model import Template

MATRIX_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The products of a claim, without attention, which is none of weights; and the rates that were seen."""

    resident: Resident
    operations: float
    """Of a claim, the mean of some."""
    rates: list[float] = field(default_factory=list)
    """Operations per CPU second."""

    def look(self) -> None:
        """Measure the rate once more: neighbours on the machine change it."""
        self.rates.append(matrix_rate(*widest_layer(self.resident), self.resident.dtype))

    @property
    def cpu_s(self) -> float:
        """The CPU seconds that a claim takes at the median of the rates."""
        return self.operations / statistics.median(self.rates)


def ceiling_of(model: HfModel, template: Template, claims: Sequence[str]) -> Ceiling:
    """Return the ceiling of scoring these claims."""
    bound = model.bind(BoundTask(template=template, method="score"))
    if not isinstance(bound, ScoreBound) or bound.tree is None:
        raise SystemExit("this model is scored one sequence at a time: there is nothing to compare")
    rows = bound.encode([Row(row=n, claim=claim) for n, claim in enumerate(claims)])
    return Ceiling(resident=bound.tree.resident, operations=operations(bound.tree.resident, rows))


def operations(resident: Resident, rows: Sequence[Encoded]) -> float:
    """Return the operations of the products that a row takes, of rows that are scored in one pass; the mean of some."""
    n_head = resident.model.get_output_embeddings().weight.numel()
    n_body = sum(part.numel() for part in resident.model.get_decoder().layers.parameters())
    n_read = sum(
        1 + len(branches.common) + len(branches.fed) for row in rows for branches in [arrange(row.payload.labels)]
    )
    return 2 * (n_body * sum(row.n_tokens for row in rows) + n_head * n_read) / len(rows)


def widest_layer(resident: Resident) -> tuple[int, int]:
    """Return how many numbers the widest layer takes and gives for a token."""
    config = resident.model.config.get_text_config()
    return config.hidden_size, config.intermediate_size


def matrix_rate(n_in: int, n_out: int, dtype: torch.dtype) -> float:
    """Return the best rate seen of a product, in operations per CPU second."""
    x, weight = torch.randn(MATRIX_ROWS, n_in, dtype=dtype), torch.randn(n_out, n_in, dtype=dtype)
    best = 0.0
    for _ in range(20):
        began_s = time.process_time()
        for _ in range(10):
            torch.nn.functional.linear(x, weight)
        best = max(best, 10 * 2 * MATRIX_ROWS * n_in * n_out / max(time.process_time() - began_s, 1e-9))
    return best
