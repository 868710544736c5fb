"""What a sweep that stops early saves: eight templates on claims with gold labels, once in full and once halving.

Both are planned, computed by real agents on this machine and collected. The halving sweep is to find the template that
the full one finds, with at most half of its inferences. Templates are the built-in ones for FEVER's labels and variants
of them; the model is SmolLM2-135M, a GGUF file that agents convert on the node once, before anything is timed.
The last line is one JSON document.

    python bench/sweep.py [CLAIMS.jsonl] [--model PATH|fake] [--claims 800] [--budget SHARE] [--agents 2]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

BUILT_IN = ("fever", "fever-examples", "fever-raw")
QUESTIONS = {
    "short": "Is this claim supported, refuted, or is there not enough info? {{ claim }}",
    "verdict-first": "Verdict on the claim: {{ claim }}",
    "doubting": "Assume that the claim is false unless you know that it is true. Claim: {{ claim }}",
    "trusting": "Assume that the claim is true unless you know that it is false. Claim: {{ claim }}",
    "bare": "{{ claim }}",
}
"""Name → what the model is asked."""

UNITS = ("--unit-rows", "10")
LABELS = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
GOALS = {"same_template": True, "inferences_share": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one sweep."""

    seconds: float
    summary: dict[str, Any]

    @property
    def best(self) -> str:
        """The template that comes first."""
        return str(self.summary["tasks"][self.summary["ranking"][0]]["template"])

    @property
    def inferences(self) -> int:
        """Verdicts computed."""
        return int(self.summary["rows"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Makes runs in a folder of its own."""

    scratch: Path
    claims: Path
    model: str
    engine: str
    templates: Sequence[str]
    n_agents: int

    def measure(self, name: str, *options: str) -> Found:
        """Plan a sweep, let agents do it, and collect it."""
        run = self.scratch / name
        templates = [word for template in self.templates for word in ("--template", template)]
        self._fsctx("plan", str(self.claims), "--run", str(run), "--model", self.model, *templates, *UNITS, *options)
        began_s = time.monotonic()
        own = ("--engine", self.engine, "--cache", str(self.scratch / "cache"))
        agents = [self._start("agent", str(run), *own) for _ in range(self.n_agents)]
        for agent in agents:
            _, said = agent.communicate()
            if agent.returncode:
                sys.exit(f"an agent failed: {said}")
        seconds = time.monotonic() - began_s
        return Found(seconds=seconds, summary=json.loads(self._fsctx("collect", str(run), "--json")))

    def _fsctx(self, *arguments: str) -> str:
        process = self._start(*arguments)
        out, said = process.communicate()
        if process.returncode:
            sys.exit(said)
        return out

    def _start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "fsctx", *arguments]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write_templates(folder: Path) -> list[str]:
    """Write the variants; return what `--template` is told of all."""
    labels = ", ".join(json.dumps(label) for label in LABELS)
    paths = []
    for name, question in QUESTIONS.items():
        paths.append(folder / f"{name}.toml")
        paths[-1].write_text(f'name = "{name}"\nuser = {json.dumps(question)}\nlabels = [{labels}]\n')
    return [*BUILT_IN, *map(str, paths)]


def write_claims(source: Path | None, n: int, path: Path) -> None:
    """Write the first claims of a JSON Lines file, else of the ones that come with the package."""
    found = resources.files("fsctx.demo") / "claims.jsonl" if source is None else source
    rows = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()[:n]]
    path.write_text("".join(json.dumps({"claim": row["claim"], "label": row["label"]}) + "\n" for row in rows))


def report(full: Found, halving: Found, budget: int | None) -> None:
    """Print both and the JSON line."""
    print(f"{'sweep':<10}{'inferences':>12}{'seconds':>10}  best template")
    for name, found in (("full", full), ("halving", halving)):
        print(f"{name:<10}{found.inferences:>12,}{found.seconds:>10.1f}  {found.best}")
    for task in halving.summary["sweep"]["dropped"]:
        print(f"dropped after {task['claims']:,} claims ({task['reason']}, p {task['p']:.2g}): {task['template']}")
    accuracies = {task["template"]: task["accuracy"] for task in full.summary["tasks"]}
    document = {
        "claims": full.inferences // len(accuracies),
        "budget": budget,
        "full": {"inferences": full.inferences, "seconds": round(full.seconds, 1), "best": full.best},
        "halving": {"inferences": halving.inferences, "seconds": round(halving.seconds, 1), "best": halving.best},
        "accuracy_on_all_claims": accuracies,
        "dropped": {task["template"]: task["claims"] for task in halving.summary["sweep"]["dropped"]},
        "same_template": full.best == halving.best,
        "inferences_share": round(halving.inferences / full.inferences, 4),
        "goals": GOALS,
    }
    print(json.dumps(document))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim` and `label`; else the demo's")
    parser.add_argument("--model", default=".model/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--engine", default="auto", help="what agents are told, say fake:accuracy:fever=0.9")
    parser.add_argument("--claims", type=int, default=800, help="with fewer, the first sample is no small part")
    parser.add_argument("--budget", type=float, default=0.5, help="share of the full sweep; 0: none")
    parser.add_argument("--agents", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        claims = scratch / "claims.jsonl"
        write_claims(options.path, options.claims, claims)
        bench = Bench(
            scratch=scratch,
            claims=claims,
            model=options.model,
            engine=options.engine,
            templates=write_templates(scratch),
            n_agents=options.agents,
        )
        n_all = len(bench.templates) * len(claims.read_text().splitlines())
        budget = int(options.budget * n_all) or None
        few = scratch / "few.jsonl"
        write_claims(options.path, 2, few)
        replace(bench, claims=few).measure("warm")  # fills the node's cache
        halving = bench.measure("halving", "--sweep", "halving", *(("--budget", str(budget)) if budget else ()))
        report(bench.measure("full"), halving, budget)
    return 0


if __name__ == "__main__":
    sys.exit(main())
