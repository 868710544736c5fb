"""What a claim costs: the paper's listing, other engines, and this one, on one model. The last line is JSON.

    listing     per claim: chat template, tokenizer, `model.generate` of one prompt, greedy (arXiv 2510.14024)
    padded      the same prompts through `model.generate` in padded batches
    lm-eval     lm-evaluation-harness: every label's words behind every prompt
    llama.cpp   the same by llama-cpp-python from the GGUF file, with its prefix cache
    vllm        vLLM on the CPU: answers held to the labels' words (generates; no scores)
    generate    this engine, generation: the constant prefix is read once
    choice      this engine, generation held to the labels' words
    float32     this engine, scoring of all labels
    bfloat16    the same in half precision, and how often its verdict is that of float32

The measure is CPU seconds a claim: another process on the machine disturbs it less than a clock does. This process'
ways take turns in rounds, so that they are disturbed alike; slow ones do fewer claims. A round should have about a
hundred, as an agent's visits have: few claims are padded more, as no two are equally long. The others run once, in
environments of their own (--environments; made at the first use, and skipped with the reason where that can't be).
Threads are as OMP_NUM_THREADS says.

The ceiling: claims' and labels' tokens × 2 × the parameters that each of them needs, at the rate at which this machine
multiplies matrices of the model's widest layer, measured after each round (the median).

At last an agent's whole run beside the engine alone: the wall time of `--whole` claims in bfloat16, without the start.

    OMP_NUM_THREADS=1 python bench/engine.py [CLAIMS.jsonl] [--model PATH] [--template fever]... [--quick]
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from rivals.ceiling import ceiling_of
from rivals.claims import read_claims
from rivals.environment import Rival, Skipped, run
from rivals.ways import Measured, agreement, margins, own_ways, prompts_of, take_turns, with_engine
from rivals.whole import DTYPE, whole_runs

from fsctx.agent.engines.hf.convert import convert_gguf
from fsctx.agent.engines.hf.engine import HfEngine, HfModel
from fsctx.templates.load import load_template
from fsctx.templates.model import Template

NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" if platform.machine() == "x86_64" else ""
"""llama.cpp's AMX kernels end with an illegal instruction in a virtual machine that has AMX (seen with 0.3.35)."""
RIVALS = (
    Rival(name="lm-eval", script="lm_eval_side.py", package="lm-eval", borrows=True),
    Rival(
        name="llama.cpp",
        script="llama_side.py",
        package="llama-cpp-python",
        building={
            "CMAKE_ARGS": "-DLLAVA_BUILD=OFF",  # no pictures: a third less to compile
            "CFLAGS": NO_AMX,
            "CXXFLAGS": NO_AMX,
        },
    ),
    Rival(name="vllm", script="vllm_side.py", package=None),
)
RIVALS_SHARE = 0.125
TEMPLATES = ("fever", str(Path(__file__).parent / "rivals" / "fever_400.toml"))
ENVIRONMENTS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fsctx-bench"


def against(claims: Sequence[str], folder: Path, options: argparse.Namespace, name: str) -> dict[str, Measured | str]:
    """Run the other engines on some claims; a reason stands for what can't be run."""
    template = load_template(name)
    found: dict[str, Measured | str] = {}
    chosen = claims[: max(2, round(len(claims) * RIVALS_SHARE))]
    request = {
        "model": str(folder),
        "gguf": str(options.model),
        "labels": {label.name: label.words for label in template.labels},
        "prompts": prompts_of(folder, template, chosen),
    }
    for rival in RIVALS:
        if rival.name == "llama.cpp" and options.model.suffix != ".gguf":
            found[rival.name] = "--model is not a .gguf file"
            continue
        try:
            with tempfile.TemporaryDirectory() as scratch:
                said = run(rival, request, environments=options.environments, scratch=Path(scratch))
            found[rival.name] = Measured(n_claims=len(chosen), **said)
        except Skipped as error:
            found[rival.name] = str(error)
    return found


def report(name: str, ways: dict[str, Measured | str], ceilings: dict[str, float]) -> dict[str, object]:
    """Print one template's table; return what the JSON document says of it."""
    measured = {way: seen for way, seen in ways.items() if isinstance(seen, Measured)}
    cost = {way: seen.cpu_s / seen.n_claims for way, seen in measured.items()}
    fraction = {way: round(ceilings[way] / cost[way], 3) for way in ceilings}
    same = {way: agreement(seen.verdicts, measured["float32"].verdicts) for way, seen in measured.items()}
    print(f"\ntemplate {name}")
    print(
        f"{'way':<12}{'claims':>7}{'claims/s':>10}{'CPU s/claim':>13}{'x listing':>11}"
        f"{'of ceiling':>12}{'as float32':>12}"
    )
    for way, seen in ways.items():
        if not isinstance(seen, Measured):
            print(f"{way:<12}skipped: {seen}")
            continue
        print(
            f"{way:<12}{seen.n_claims:>7}{seen.n_claims / seen.wall_s:>10.2f}{cost[way]:>13.4f}"
            f"{cost['listing'] / cost[way]:>11.1f}{fraction.get(way, ''):>12}{same[way]:>12.3f}"
        )
    return {
        "cpu_s_per_claim": {way: round(value, 4) for way, value in cost.items()},
        "claims_per_s": {way: round(seen.n_claims / seen.wall_s, 3) for way, seen in measured.items()},
        "times_listing": {way: round(cost["listing"] / value, 2) for way, value in cost.items()},
        "times_lm_eval": {way: round(cost["lm-eval"] / value, 2) for way, value in cost.items() if "lm-eval" in cost},
        "of_ceiling": fraction,
        "agreement_with_float32": same,
        "skipped": {way: seen for way, seen in ways.items() if isinstance(seen, str)},
    }


def ties(model: HfModel, template: Template, claims: Sequence[str], ours: dict[str, Measured]) -> dict[str, object]:
    """Print how near a tie in float32 the claims are that bfloat16 judges otherwise; return it for the document."""
    exact, half = ours["float32"].verdicts, ours["bfloat16"].verdicts
    differing = margins(model, template, [claim for claim in claims if exact[claim] != half[claim]])
    usual = statistics.median(margins(model, template, claims))
    if differing:
        print(
            f"bfloat16 judges {len(differing)} of {len(claims)} claims otherwise: in float32 their best label leads by"
            f" {differing[-1]:.3f} nat at most, the median of all claims is {usual:.3f}"
        )
    return {"margins_where_bfloat16_differs": [round(own, 4) for own in differing], "median_margin": round(usual, 4)}


def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Measure all ways with each template."""
    claims = read_claims(options.path, options.claims)
    found: dict[str, object] = {}
    for name in options.template or TEMPLATES:
        template = load_template(name)
        own, loaded = own_ways(folder, template)
        ceilings = {dtype: ceiling_of(model, template, claims) for dtype, model in loaded.items()}
        ours = take_turns(own, claims, options.rounds, after_each=[one.look for one in ceilings.values()])
        first = {way: ours[way] for way in ("listing", "padded")}
        ways = first | against(claims, folder, options, name) | ours
        told = report(template.name, ways, {dtype: one.cpu_s for dtype, one in ceilings.items()})
        found[template.name] = told | ties(loaded["float32"], template, claims, ours)
    return found


def whole(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Measure and print what an agent's whole run takes, as a multiple of the engine alone."""
    claims, name = read_claims(options.path, options.whole), (options.template or TEMPLATES)[0]
    alone = with_engine(HfEngine(device="cpu", dtype=DTYPE).load(folder), load_template(name), "score")
    with tempfile.TemporaryDirectory() as scratch:
        seen = whole_runs(claims, folder, name, lambda: alone(claims), rounds=options.rounds + 1, scratch=Path(scratch))
    print(
        f"\nan agent's run of {len(claims)} claims takes {seen.times:.3f} times the engine's time alone"
        f" (goal: under 1.05); {seen.inferring:.1%} of its time it computes"
    )
    return {**asdict(seen), "agent_to_engine": round(seen.times, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim`; else the demo's claims")
    parser.add_argument("--model", type=Path, default=Path(".model/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--template", action="append", help="as `fsctx plan` takes it; repeatable")
    parser.add_argument("--claims", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--whole", type=int, default=512, help="claims of the agent's whole run; 0: none")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="folder of the other engines' own")
    parser.add_argument("--quick", action="store_true", help="16 claims, one round, one template, no run")
    options = parser.parse_args()
    if options.quick:
        options.claims, options.rounds, options.whole = 16, 1, 0
        options.template = options.template or ["fever"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.model
        if options.model.suffix == ".gguf":
            folder = Path(scratch) / "model"
            convert_gguf(options.model, folder)
        document: dict[str, object] = {
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "templates": measure(folder, options),
        }
        if options.whole:
            document["whole"] = whole(folder, options)
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
