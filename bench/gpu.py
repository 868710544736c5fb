"""What a claim costs on a GPU: one call measures everything, prints a table, and one JSON document as the last line.

    python bench/gpu.py [CLAIMS.jsonl] [--model PATH] [--template fever] [--device cuda:0] [--budget-s 440]
    python bench/gpu.py --device cpu --quick      # the same code on any machine, at a size that says nothing

It needs the package and its extra `hf`, nothing else. Without --model, and without the file that `make setup` fetches,
the model is SmolLM2-135M's shape with random weights, with a tokenizer made here that cuts claims into about as many
tokens. Then the agreement of verdicts says little, as labels are near ties: look at the difference in nat.

Parts, in the order of their importance; each has a share of the budget, and what it has no time for is skipped and
says so. What is measured is printed at once, and the JSON line comes at the end whatever fails before it.

    rates         matrix products of the card in each precision; three ways to a float32 head
    scoring       `hf` score in each precision, batches of several sizes, two forms of attention to the prefix
    agent         a whole run of an agent (fsctx plan, fsctx agent), start-up excluded, against the engine alone
    transformers  the paper's listing (arXiv 2510.14024) and padded batches
    generating    `hf` generate, and with choice
    larger        score with SmolLM2-360M's and 1.7B's shapes
    loads         1.7B by an agent whose node has nothing, by the next one, by the engine alone, straight to the device
    vllm          score and choice, where it is installed
    splits        1.7B by --tp and --pp, where there are several cards

Seconds are of a clock, with the card waited for before and after; first batches, which warm up, do not count. The
ceiling is claims' and labels' tokens × 2 × the parameters that each of them needs, at the rate at which the card
multiplies matrices of the model's widest layer. No other program should use the card meanwhile.

What a first user of a GPU should look at, as none of it was seen on one yet:

    of ceiling    low with every batch: the processor can't tell the card fast enough what to do, and prepares each
                  batch while the card waits. It should rise with the batch and with the larger shapes
    batch         the engine's own choice (the first of a precision) should be the quickest that fits; `peak GB` tells
                  how near the card's memory is. If 65536 tokens are clearly quicker, the engine's limit is too low.
                  It does not reckon with long templates, nor with what generating keeps: a first batch that does not
                  fit is halved and remembered, which costs a second
    score, ...    "shared prefix" quicker than "masked prefix": then it should be the engine's choice on GPUs as on
                  CPUs. "one by one": the quick way was refused, and the log says why
    head          `tf32` or `half_in_float32_out` much quicker than `engine`, with the same numbers: products of half
                  precision numbers are exact in both, so that the engine should take one of them
    nat           above 0.25 in half precision, or errors of rows in float16 alone: the model is not for that precision
    agent         ratio under 0.95: compare encode_per_s (one thread makes tokens) with bare_per_s; `inferring` is the
                  share of its time in which the agent computed
    loads         fetch_s with an empty cache against load_s; straight_to_device_s much under engine_alone_s: then
                  weights should not go by the processor's memory
    choice        slower than generate: each step asks the processor what may follow
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rivals.claims import read_claims

from fsctx.agent.device import DeviceInfo, preflight
from fsctx.errors import FsctxError, InputError

if TYPE_CHECKING:
    from on_gpu.bench import Bench

GGUF = Path(".model/SmolLM2-135M-Instruct.Q4_1.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something to measure, with its share of the time."""

    name: str
    run: "Callable[[Bench], None]"
    share_s: float
    least_s: float
    """Not begun with less."""


def all_parts() -> tuple[Part, ...]:
    """Return the parts, the most important first."""
    from on_gpu import agents, others, parts

    return (
        Part(name="rates", run=parts.rates, share_s=20, least_s=5),
        Part(name="scoring", run=parts.scoring, share_s=110, least_s=20),
        Part(name="agent", run=agents.whole_run, share_s=90, least_s=45),
        Part(name="transformers", run=parts.transformers, share_s=40, least_s=10),
        Part(name="generating", run=parts.generating, share_s=40, least_s=10),
        Part(name="larger", run=parts.larger, share_s=50, least_s=15),
        Part(name="loads", run=agents.loads, share_s=90, least_s=40),
        Part(name="vllm", run=others.vllm, share_s=120, least_s=60),
        Part(name="splits", run=others.splits, share_s=120, least_s=30),
    )


def measure(bench: "Bench") -> None:
    """Do all parts; none keeps those behind it from being done."""
    from on_gpu import card
    from on_gpu.clock import Skipped

    for part in all_parts():
        card.forget(bench.device)
        try:
            bench.clock.begin(part.share_s, least_s=part.least_s)
            part.run(bench)
        except Skipped as reason:
            bench.found.skip(part.name, str(reason))
        except Exception as error:  # noqa: BLE001 - what else was and will be found counts for more
            bench.found.fail(part.name, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


def check(options: argparse.Namespace) -> None:
    """Refuse files that are not there.

    Raises:
        InputError: with the file.
    """
    for path in filter(None, (options.path, options.model)):
        if not path.exists():
            raise InputError(f"{path} is not there: give a file of claims, or a model, that is")


def make_bench(options: argparse.Namespace, info: DeviceInfo, scratch: Path) -> "Bench":
    """Prepare what the parts share: model, claims, clock."""
    from on_gpu import bench, card, clock, table

    from fsctx.templates.load import load_template

    began = clock.Clock(options.budget_s)
    claims = read_claims(options.path, bench.FULL.rows)
    found = table.Findings(card=card.describe(info))
    print(", ".join(f"{name} {value}" for name, value in found.card.items()), flush=True)
    return bench.Bench(
        spec=info.spec,
        folder=model_folder(options, claims, scratch),
        scratch=scratch,
        template=load_template(options.template),
        claims=claims,
        sizes=bench.QUICK if options.quick else bench.FULL,
        clock=began,
        found=found,
    )


def model_folder(options: argparse.Namespace, claims: list[str], scratch: Path) -> Path:
    """Return the model's folder: the one given, a GGUF file converted, or a random model."""
    import torch
    from on_gpu import shapes

    from fsctx.agent.engines.hf.convert import convert_gguf

    given = options.model or (GGUF if GGUF.is_file() and not options.quick else None)
    if given is None:
        shape = "tiny" if options.quick else "135M"
        like = shapes.write_tokenizer(scratch / "tokenizer", claims)
        print(f"the model: {shape}, random weights", flush=True)
        device = torch.device("cpu")
        return shapes.write_model(scratch / "model", shape, dtype=torch.float32, device=device, like=like)
    print(f"the model: {given}", flush=True)
    if given.suffix == ".gguf":
        convert_gguf(given, scratch / "model")
        return scratch / "model"
    return given


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim`; else the demo's claims")
    parser.add_argument("--model", type=Path, help="a model folder or a .gguf file; else SmolLM2-135M, or its shape")
    parser.add_argument("--template", default="fever", help="as `fsctx plan` takes it")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to see that it works")
    parser.add_argument("--budget-s", type=float, default=440.0, help="the most that all parts take, about")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few claims: says nothing of speed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was found is printed
    with tempfile.TemporaryDirectory(prefix="fsctx-bench-") as scratch:
        try:
            check(options)
            bench = make_bench(options, preflight(options.device), Path(scratch))
        except FsctxError as error:
            print(f"bench/gpu.py: {error}", file=sys.stderr)
            return 2
        try:
            measure(bench)
        finally:
            print(json.dumps(bench.found.document(bench.clock.gone_s)), flush=True)
    return 1 if bench.found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
