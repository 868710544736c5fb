"""What a sweep that stops early saves: eight templates on claims with gold labels, once in full and once halving.

Both are planned, computed by real agents on this machine and collected. The halving sweep is to find the template that
the full one finds (or one that is right on as many claims), with at most half of its inferences. Templates are the
built-in ones for FEVER's labels and variants of them; the model is SmolLM2-135M, a GGUF file that agents convert on the
node once, before anything is timed.

One halving sweep may be lucky: which claims come first is chance. So the verdicts of the full sweep are judged again in
many shuffled orders, by the agents' own rule, with and without the budget.
The last line is one JSON document.

    python bench/sweep.py [CLAIMS.jsonl] [--model PATH|fake] [--claims 800] [--budget SHARE] [--agents 2] [--dtype D]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsctx.agent.judging import Marks, budget_left, judge
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.manifest import read_manifest
from fsctx.protocol.sweep import Decision, Extent, Sweep, extent_of
from fsctx.store import PosixStore

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
SHUFFLES = 1_000

Outcomes = np.ndarray[Any, np.dtype[np.bool_]]
"""(tasks, claims): who is right on what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one sweep."""

    run: Path
    verdicts: Path
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
    engine: Sequence[str]
    """What agents are told of it."""
    templates: Sequence[str]
    n_agents: int

    def measure(self, name: str, *options: str) -> Found:
        """Plan a sweep, let agents do it, and collect it."""
        run = self.scratch / name
        templates = [word for template in self.templates for word in ("--template", template)]
        self._fsctx("plan", str(self.claims), "--run", str(run), "--model", self.model, *templates, *UNITS, *options)
        began_s = time.monotonic()
        own = ("--cache", str(self.scratch / "cache"))
        agents = [self._start("agent", str(run), *self.engine, *own) for _ in range(self.n_agents)]
        for agent in agents:
            _, said = agent.communicate()
            if agent.returncode:
                sys.exit(f"an agent failed: {said}")
        seconds = time.monotonic() - began_s
        verdicts = self.scratch / f"{name}.parquet"
        summary = json.loads(self._fsctx("collect", str(run), "-o", str(verdicts), "--json"))
        found = Found(run=run, verdicts=verdicts, seconds=seconds, summary=summary)
        print(f"{name:<10}{found.inferences:>12,} inferences{seconds:>10.1f} s  {found.best}", flush=True)
        return found

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """What halving sweeps over the same claims in other orders find."""

    same_template: float
    """Share of them that find a template as good as the best."""
    accuracy_lost: float
    """On all claims, on average."""
    inferences_share: float


def outcomes_of(found: Found) -> Outcomes:
    """Read who is right on what from a full sweep's verdicts."""
    table = pq.read_table(found.verdicts, columns=["template", "label", "verdict"])
    right = pc.fill_null(pc.equal(table["label"], table["verdict"]), fill_value=False)
    templates = [task["template"] for task in found.summary["tasks"]]
    return np.array([right.filter(pc.equal(table["template"], name)).to_numpy() for name in templates])


def replayed(right: Outcomes, geometry: Geometry, sweep: Sweep) -> Extent:
    """Make the decisions of a halving sweep whose samples are the first claims."""
    made: list[Decision] = []
    while (extent := extent_of(geometry, sweep, made)).waiting:
        rung = len(made)
        rows = np.arange(geometry.rows_before(sweep.ends[rung]))
        marks = {task: Marks(rows=rows, is_right=right[task, : len(rows)]) for task in extent.waiting}
        after = [sweep.least_rows(geometry, n_tasks=n, rung=rung + 1) for n in range(len(marks) + 1)]
        left = budget_left(sweep, geometry, extent.planned, rung)
        made.append(Decision(rung=rung, tasks=judge(marks, sweep, left=left, after=after), agent="", time=""))
    return extent


def replay(right: Outcomes, geometry: Geometry, sweep: Sweep) -> Replays:
    """Repeat a halving sweep in other orders of the claims."""
    chance, accuracy = np.random.default_rng(0), right.mean(axis=1)
    lost, shares = [], []
    for _ in range(SHUFFLES):
        extent = replayed(right[:, chance.permutation(right.shape[1])], geometry, sweep)
        kept = [task for task, end in enumerate(extent.planned) if end == geometry.n_slices]
        lost.append(accuracy.max() - accuracy[kept].max())
        shares.append(1 - extent.dropped_rows / right.size)
    return Replays(
        same_template=float(np.mean(np.equal(lost, 0))),
        accuracy_lost=float(np.mean(lost)),
        inferences_share=float(np.mean(shares)),
    )


def report(full: Found, halving: Found) -> None:
    """Print what was dropped, the replays and the JSON line."""
    for task in halving.summary["sweep"]["dropped"]:
        print(f"dropped after {task['claims']:,} claims ({task['reason']}, p {task['p']:.2g}): {task['template']}")
    accuracies = {task["template"]: task["accuracy"] for task in full.summary["tasks"]}
    right, manifest = outcomes_of(full), read_manifest(PosixStore(halving.run))
    assert manifest.sweep is not None
    sweeps = {"without_budget": replace(manifest.sweep, budget=None), "with_budget": manifest.sweep}
    replays = {name: asdict(replay(right, manifest.geometry, sweep)) for name, sweep in sweeps.items()}
    for name, seen in replays.items():
        print(f"{SHUFFLES:,} other orders, {name}: {seen}")
    document = {
        "claims": right.shape[1],
        "budget": manifest.sweep.budget,
        "full": {"inferences": full.inferences, "seconds": round(full.seconds, 1), "best": full.best},
        "halving": {"inferences": halving.inferences, "seconds": round(halving.seconds, 1), "best": halving.best},
        "accuracy_on_all_claims": accuracies,
        "perhaps_as_good_as_the_best": perhaps_as_good(full),
        "dropped": {task["template"]: task["claims"] for task in halving.summary["sweep"]["dropped"]},
        "same_template": accuracies[full.best] == accuracies[halving.best],
        "inferences_share": round(halving.inferences / full.inferences, 4),
        "replays": replays,
        "goals": GOALS,
    }
    print(json.dumps(document))


def perhaps_as_good(full: Found) -> list[str]:
    """Name the templates that are not worse than the best for real."""
    tasks, pairs = full.summary["tasks"], full.summary["comparisons"]
    best = full.summary["ranking"][0]
    return [tasks[pair["b"]]["template"] for pair in pairs if pair["a"] == best and not pair["is_real"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim` and `label`; else the demo's")
    parser.add_argument("--model", default=".model/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--engine", default="auto", help="what agents are told, say fake:accuracy:fever=0.9")
    parser.add_argument("--dtype", help="what agents compute in; by the device if not given")
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
            engine=("--engine", options.engine, *(("--dtype", options.dtype) if options.dtype else ())),
            templates=write_templates(scratch),
            n_agents=options.agents,
        )
        n_all = len(bench.templates) * len(claims.read_text().splitlines())
        budget = int(options.budget * n_all) or None
        few = scratch / "few.jsonl"
        write_claims(options.path, 2, few)
        replace(bench, claims=few).measure("warm")  # fills the node's cache
        full = bench.measure("full")
        report(full, bench.measure("halving", "--sweep", "halving", *(("--budget", str(budget)) if budget else ())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
