"""Claims per second: the paper's loop, a padded batch, and this engine's ways, on one model in one process.

    a   per claim: chat template, tokenizer, `model.generate` of one prompt, greedy (the listing of arXiv 2510.14024)
    b   the same prompts through `model.generate` in padded batches
    g   this engine, generation: the constant prefix is read once
    s   this engine, scoring of all labels, float32
    h   this engine, scoring, bfloat16, and how often its verdict is that of float32

All ways take turns in rounds, so that a noisy machine disturbs them alike. Threads are as OMP_NUM_THREADS says.
The last line is one JSON document.

    OMP_NUM_THREADS=1 python bench/engine.py [CLAIMS.jsonl] [--model PATH] [--claims 64] [--rounds 2]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.engines.base import Bound, BoundTask, Model, Row
from fsctx.agent.engines.hf.convert import convert_gguf
from fsctx.agent.engines.hf.engine import HfEngine
from fsctx.agent.engines.hf.files import silence
from fsctx.protocol.manifest import Method
from fsctx.protocol.verdicts import Verdict
from fsctx.templates.load import load_template
from fsctx.templates.model import Template
from fsctx.templates.read_verdict import read_verdict
from fsctx.templates.render import Renderer

PADDED_ROWS = 8
Verdicts = dict[str, str | None]


@dataclass(slots=True, kw_only=True)
class Way:
    """One way of computing verdicts, and what it took so far."""

    letter: str
    what: str
    run: Callable[[Sequence[str]], Verdicts]
    share: float
    """Of the claims: slow ways do fewer."""
    claims: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    verdicts: Verdicts = field(default_factory=dict)

    def turn(self, claims: Sequence[str]) -> None:
        """Do some claims and add up the time."""
        chosen = claims[: max(1, round(len(claims) * self.share))]
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        self.verdicts |= self.run(chosen)
        self.wall_s += time.perf_counter() - wall_s
        self.cpu_s += time.process_time() - cpu_s
        self.claims += len(chosen)


class Bare:
    """Transformers as its manual shows it: what `a` and `b` use."""

    def __init__(self, folder: Path, template: Template) -> None:
        silence()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._template = template
        self._renderer = Renderer(template)

    def one_by_one(self, claims: Sequence[str]) -> Verdicts:
        """Do each claim by itself."""
        return {claim: self._generate([claim])[0] for claim in claims}

    def padded(self, claims: Sequence[str]) -> Verdicts:
        """Do the claims in batches, in the order given."""
        parts = [claims[at : at + PADDED_ROWS] for at in range(0, len(claims), PADDED_ROWS)]
        return {claim: said for part in parts for claim, said in zip(part, self._generate(part), strict=True)}

    def _generate(self, claims: Sequence[str]) -> list[str | None]:
        chats = [
            [{"role": m.role, "content": m.content} for m in self._renderer.prompt(c, {}).messages] for c in claims
        ]
        texts = self._tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
        fed = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.inference_mode():
            out = self._model.generate(
                **fed,
                max_new_tokens=self._template.generation.max_new_tokens,
                do_sample=False,
                pad_token_id=self._tokenizer.eos_token_id,
            )
        written = self._tokenizer.batch_decode(out[:, fed["input_ids"].shape[1] :], skip_special_tokens=True)
        return [read_verdict(text, self._template) for text in written]


def with_engine(model: Model, template: Template, method: Method) -> Callable[[Sequence[str]], Verdicts]:
    """Return what computes verdicts with this project's engine, encoding included."""
    bound: Bound = model.bind(BoundTask(template=template, method=method))

    def run(claims: Sequence[str]) -> Verdicts:
        encoded = bound.encode([Row(row=n, claim=claim) for n, claim in enumerate(claims)])
        parts = infer_all(bound, encoded, budget=Budget(model.batch_tokens), should_stop=lambda: False)
        found: list[Verdict] = [verdict for part in parts for verdict in part]
        return {claims[verdict.row]: verdict.verdict for verdict in found}

    return run


def measure(folder: Path, claims: Sequence[str], rounds: int) -> list[Way]:
    """Let all ways take turns."""
    template = load_template("fever")
    bare = Bare(folder, template)
    single = HfEngine(device="cpu", dtype="float32").load(folder)
    half = HfEngine(device="cpu", dtype="bfloat16").load(folder)
    ways = [
        Way(letter="a", what="generate, claim by claim", run=bare.one_by_one, share=0.125),
        Way(letter="b", what=f"generate, padded by {PADDED_ROWS}", run=bare.padded, share=0.25),
        Way(letter="g", what="fsctx generate", run=with_engine(single, template, "generate"), share=0.5),
        Way(letter="s", what="fsctx score float32", run=with_engine(single, template, "score"), share=1.0),
        Way(letter="h", what="fsctx score bfloat16", run=with_engine(half, template, "score"), share=1.0),
    ]
    for way in ways:
        way.run(claims[:1])  # warm
    for number in range(rounds):
        for way in ways:
            way.turn(claims[number::rounds])
    return ways


def report(ways: Sequence[Way]) -> None:
    """Print the table and the JSON line."""
    by = {way.letter: way for way in ways}
    paper = by["a"].wall_s / by["a"].claims
    print(f"{'':<3}{'way':<28}{'claims':>7}{'claims/s':>10}{'CPU s/claim':>13}{'times a':>9}")
    for way in ways:
        each = way.wall_s / way.claims
        print(
            f"{way.letter:<3}{way.what:<28}{way.claims:>7}{1 / each:>10.2f}{way.cpu_s / way.claims:>13.3f}"
            f"{paper / each:>9.1f}"
        )
    document = {
        "threads": torch.get_num_threads(),
        "claims_per_s": {way.letter: round(way.claims / way.wall_s, 3) for way in ways},
        "cpu_s_per_claim": {way.letter: round(way.cpu_s / way.claims, 4) for way in ways},
        "times_paper_wall": {way.letter: round(paper * way.claims / way.wall_s, 2) for way in ways},
        "times_paper_cpu": {
            way.letter: round(by["a"].cpu_s / by["a"].claims / (way.cpu_s / way.claims), 2) for way in ways
        },
        "agreement_bfloat16": agreement(by["h"].verdicts, by["s"].verdicts),
        "agreement_generate": agreement(by["g"].verdicts, by["a"].verdicts),
    }
    print(json.dumps(document))


def agreement(one: Verdicts, other: Verdicts) -> float:
    """Return the share of equal verdicts among the claims that both did."""
    both = one.keys() & other.keys()
    return round(sum(one[claim] == other[claim] for claim in both) / max(1, len(both)), 4)


def read_claims(path: Path | None, n: int) -> list[str]:
    """Return distinct claims of a JSON Lines file, else of the ones that come with the package."""
    source = resources.files("fsctx.demo") / "claims.jsonl" if path is None else path
    lines = source.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["claim"] for line in lines))[:n]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim`; else the demo's claims")
    parser.add_argument("--model", type=Path, default=Path(".model/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--claims", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    claims = read_claims(options.path, options.claims)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.model
        if options.model.suffix == ".gguf":
            folder = Path(scratch) / "model"
            convert_gguf(options.model, folder)
        report(measure(folder, claims, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
