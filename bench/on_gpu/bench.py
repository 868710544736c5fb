"""What all parts share: the model, the claims, the clock, and how a way is timed."""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from rivals.ceiling import operations, widest_layer

from fsctx.agent.batching import batches
from fsctx.agent.engines.base import UNSPLIT, Bound, Encoded, Model, Row, Split
from fsctx.agent.engines.hf.device import default_dtype
from fsctx.agent.engines.hf.engine import HfEngine
from fsctx.agent.engines.hf.score import ScoreBound
from fsctx.protocol.verdicts import Verdict
from fsctx.templates.model import Template
from on_gpu import card, shapes
from on_gpu.clock import Clock
from on_gpu.table import Findings, Line

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rows: int
    """Rows of which batches are made; passes over them are repeated."""
    cell_s: float
    """Seconds for a line of the table."""
    batches: tuple[int, ...]
    """Tokens in a batch, besides what the engine chooses."""
    padded_rows: int
    large: str
    """The shape that is loaded from files, and split."""
    larger: tuple[str, ...]
    """Shapes that are scored without files."""
    agent_rows: int
    """Rows of an agent's run, at most."""
    splits: tuple[Split, ...]
    """How the large shape is spread over cards, where there are so many."""


FULL = Sizes(
    rows=4096,
    cell_s=4.0,
    batches=(2048, 8192, 16_384, 65_536),
    padded_rows=64,
    large="1.7B",
    larger=("360M", "1.7B"),
    agent_rows=200_000,
    splits=(Split(tp=2), Split(pp=2), Split(tp=4), Split(pp=4), Split(tp=2, pp=2)),
)
QUICK = Sizes(
    rows=48,
    cell_s=0.2,
    batches=(256,),
    padded_rows=8,
    large="tiny",
    larger=("tiny",),
    agent_rows=48,
    splits=(Split(tp=2),),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What a way did in the time that it had."""

    n_rows: int
    wall_s: float
    peak_gb: float | None
    verdicts: dict[int, Verdict]
    """By row; of ways that give verdicts of this project."""

    @property
    def rows_per_s(self) -> float:
        """The rate."""
        return self.n_rows / self.wall_s


@dataclass(slots=True, kw_only=True)
class Bench:
    """See the module."""

    spec: str
    """What `--device` says."""
    folder: Path
    """The model's, with its tokenizer."""
    scratch: Path
    template: Template
    claims: Sequence[str]
    sizes: Sizes
    clock: Clock
    found: Findings

    @property
    def device(self) -> torch.device:
        """The device as torch names it."""
        return torch.device(self.spec)

    @property
    def dtype(self) -> str:
        """The precision that the engine takes on this card; of a CPU the one that it is compared in."""
        if self.device.type == "cpu":
            return "bfloat16"
        return str(default_dtype(self.device)).removeprefix("torch.")

    def rows(self, n: int) -> list[Row]:
        """Return so many rows, the claims again and again."""
        return [Row(row=number, claim=claim) for number, claim in zip(range(n), itertools.cycle(self.claims))]

    @contextmanager
    def loaded(self, dtype: str, *, folder: Path | None = None, split: Split = UNSPLIT) -> Iterator[Model]:
        """Hold the model on the device, or on several."""
        device = self.spec if split == UNSPLIT else self.device.type
        model = HfEngine(device=device, dtype=dtype, split=split).load(folder or self.folder)
        try:
            yield model
        finally:
            model.close()

    def large_folder(self) -> Path:
        """Return the folder of the large shape in half precision, written at the first use."""
        folder = self.scratch / "large"
        if not folder.exists():
            dtype = getattr(torch, self.dtype)
            shapes.write_model(folder, self.sizes.large, dtype=dtype, device=self.device, like=self.folder)
        return folder

    def encoded(self, bound: Bound) -> list[Encoded]:
        """Return the rows as a task's tokens."""
        return [row for row in bound.encode(self.rows(self.sizes.rows)) if row.refused is None]

    def engine(self, bound: Bound, rows: Sequence[Encoded], tokens: int) -> Timed:
        """Time batches of so many tokens."""
        return self.timed(bound.infer, list(batches(rows, tokens)))

    def timed(self, infer: Callable[[Sequence[Item]], Sequence[object]], full: Sequence[Sequence[Item]]) -> Timed:
        """Time batches in a shuffled order, again and again, until a line's time is over; the first one warms up."""
        seconds = self.clock.take(self.sizes.cell_s)
        order = random.Random(0).sample(full, len(full))
        n_rows = 0
        card.forget(self.device)
        verdicts = _by_row(infer(full[0]))
        card.wait_for(self.device)
        began_s = time.perf_counter()
        for batch in itertools.cycle(order):
            verdicts |= _by_row(infer(batch))
            n_rows += len(batch)
            if time.perf_counter() - began_s >= seconds:
                break
        card.wait_for(self.device)
        wall_s = time.perf_counter() - began_s
        return Timed(n_rows=n_rows, wall_s=wall_s, peak_gb=card.peak_gb(self.device), verdicts=verdicts)

    def line(self, part: str, way: str, dtype: str, batch: int, timed: Timed, **more: float | None) -> None:
        """Add a line to the table."""
        rate = round(timed.rows_per_s, 2)
        own = {"claims": timed.n_rows, "claims_per_s": rate, "peak_gb": timed.peak_gb}
        self.found.add(Line(part=part, way=way, dtype=dtype, batch=batch, **own, **more))

    def most_per_s(self, bound: Bound, rows: Sequence[Encoded]) -> float | None:
        """Return how many rows a second the card's rate allows; None where they are not scored in one pass."""
        if not isinstance(bound, ScoreBound) or bound.tree is None:
            return None
        resident = bound.tree.resident
        rate = card.matrix_rate(*widest_layer(resident), resident.dtype, self.device)
        return rate / operations(resident, rows)


def _by_row(done: Sequence[object]) -> dict[int, Verdict]:
    return {one.row: one for one in done if isinstance(one, Verdict)}
