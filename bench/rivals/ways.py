"""The ways of computing verdicts in this process: transformers as its manual shows it, and this engine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.engines.base import Bound, BoundTask, Model, Row
from fsctx.agent.engines.hf.engine import HfEngine, HfModel
from fsctx.agent.engines.hf.files import silence
from fsctx.agent.precision import margin
from fsctx.protocol.manifest import Method
from fsctx.protocol.verdicts import Verdict
from fsctx.templates.model import Template
from fsctx.templates.read_verdict import read_verdict
from fsctx.templates.render import Renderer

PADDED_ROWS = 8
Verdicts = dict[str, str | None]
Computing = Callable[[Sequence[str]], Verdicts]


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a way took."""

    n_claims: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    verdicts: Verdicts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of computing verdicts."""

    run: Computing
    share: float
    """Of the claims: slow ways do fewer."""


class Bare:
    """Transformers as its manual shows it."""

    def __init__(
        self, folder: Path, template: Template, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        silence()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self._template = template
        self._prompts = Prompts(self._tokenizer, template)

    def one_by_one(self, claims: Sequence[str]) -> Verdicts:
        """Do each claim by itself."""
        return {claim: self.write([claim])[0] for claim in claims}

    def padded(self, claims: Sequence[str]) -> Verdicts:
        """Do the claims in batches, in the order given."""
        parts = [claims[at : at + PADDED_ROWS] for at in range(0, len(claims), PADDED_ROWS)]
        return {claim: said for part in parts for claim, said in zip(part, self.write(part), strict=True)}

    def write(self, claims: Sequence[str]) -> list[str | None]:
        """Do the claims as one batch, padded to the longest; return their verdicts."""
        texts = [self._prompts.of(claim) for claim in claims]
        fed = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(self._model.device)
        with torch.inference_mode():
            out = self._model.generate(
                **fed,
                max_new_tokens=self._template.generation.max_new_tokens,
                do_sample=False,
                pad_token_id=self._tokenizer.eos_token_id,
            )
        written = self._tokenizer.batch_decode(out[:, fed["input_ids"].shape[1] :], skip_special_tokens=True)
        return [read_verdict(text, self._template) for text in written]


class Prompts:
    """Claims to prompts, as text with the chat's own tokens."""

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer = tokenizer
        self._renderer = Renderer(template)

    def of(self, claim: str) -> str:
        """Return a claim's prompt."""
        chat = [{"role": m.role, "content": m.content} for m in self._renderer.prompt(claim, {}).messages]
        text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return text


def prompts_of(folder: Path, template: Template, claims: Sequence[str]) -> dict[str, str]:
    """Return each claim's prompt."""
    prompts = Prompts(AutoTokenizer.from_pretrained(folder), template)
    return {claim: prompts.of(claim) for claim in claims}


def own_ways(folder: Path, template: Template) -> tuple[dict[str, Way], dict[str, HfModel]]:
    """Return the ways of this process by name, and the models that score, by precision."""
    bare = Bare(folder, template)
    models = {dtype: HfEngine(device="cpu", dtype=dtype).load(folder) for dtype in ("float32", "bfloat16")}
    held = replace(template, generation=replace(template.generation, choice=True))
    ways = {
        "listing": Way(run=bare.one_by_one, share=1 / 16),
        "padded": Way(run=bare.padded, share=1 / 8),
        "generate": Way(run=with_engine(models["float32"], template, "generate"), share=1 / 4),
        "choice": Way(run=with_engine(models["float32"], held, "generate"), share=1 / 4),
        "float32": Way(run=with_engine(models["float32"], template, "score"), share=1.0),
        "bfloat16": Way(run=with_engine(models["bfloat16"], template, "score"), share=1.0),
    }
    return ways, models


def with_engine(model: Model, template: Template, method: Method) -> Computing:
    """Return what computes verdicts with this project's engine, encoding included."""
    bound: Bound = model.bind(BoundTask(template=template, method=method))

    def run(claims: Sequence[str]) -> Verdicts:
        encoded = bound.encode([Row(row=n, claim=claim) for n, claim in enumerate(claims)])
        parts = infer_all(bound, encoded, budget=Budget(model.batch_tokens), should_stop=lambda: False)
        found: list[Verdict] = [verdict for part in parts for verdict in part]
        return {claims[verdict.row]: verdict.verdict for verdict in found}

    return run


def take_turns(
    ways: dict[str, Way], claims: Sequence[str], rounds: int, *, after_each: Sequence[Callable[[], None]] = ()
) -> dict[str, Measured]:
    """Let all ways do their share of each round's claims."""
    found = {name: Measured() for name in ways}
    for way in ways.values():
        way.run(claims[:1])  # warm
    for number in range(rounds):
        own = claims[number::rounds]
        for name, way in ways.items():
            _turn(way, own[: max(1, round(len(own) * way.share))], found[name])
        for call in after_each:
            call()
    return found


def _turn(way: Way, claims: Sequence[str], total: Measured) -> None:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    total.verdicts |= way.run(claims)
    total.wall_s += time.perf_counter() - wall_s
    total.cpu_s += time.process_time() - cpu_s
    total.n_claims += len(claims)


def agreement(one: Verdicts, other: Verdicts) -> float:
    """Return the share of equal verdicts among the claims that both did."""
    both = one.keys() & other.keys()
    return round(sum(one[claim] == other[claim] for claim in both) / max(1, len(both)), 4)


def margins(model: HfModel, template: Template, claims: Sequence[str]) -> list[float]:
    """Return by how many nats the likeliest label of each claim is ahead of the next, least first."""
    if not claims:
        return []
    bound = model.bind(BoundTask(template=template, method="score"))
    found = bound.infer(bound.encode([Row(row=n, claim=claim) for n, claim in enumerate(claims)]))
    return sorted(map(margin, found))
