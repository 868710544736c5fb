"""What keeping the context is worth: a real model, two real agents on this machine, three ways, three unit sizes.

    full       files on the node, model resident from unit to unit
    partial    files on the node, model loaded again for each unit
    agnostic   everything from the shared filesystem (here: this disk) for each unit

The model is SmolLM2-135M, converted to a safetensors folder once, before anything is timed. Seconds are from the
first agent's start to the last publication, as the agents' event logs tell. Where units are so small that loading for
each would take hours, fewer claims are used (`--loads`), and the table says how many: `all claims` is then the
time before the first inference, as measured, and the rest in proportion.

At last an agent is killed (SIGKILL) and another one started on the same cache: `productive_s` is the time from its
start to its first unit being inferred, `local_load_s` what loading took it.
The last line is one JSON document.

    python bench/context.py [CLAIMS.jsonl] [--model PATH|fake] [--claims 400] [--unit-rows 1 10 100] [--loads 12]
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from fsctx.protocol import names

MODES = ("full", "partial", "agnostic")
N_AGENTS = 2
GOALS = {"full_spread": 0.05, "reduction_at_10": 0.72}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run."""

    mode: str
    unit_rows: int
    claims: int
    seconds: float
    work_s: float
    """From the beginning of the first inference to the last publication."""
    loads: int

    def scaled_s(self, claims: int) -> float:
        """Return what so many claims would take: the start as it was, the rest in proportion."""
        return self.seconds - self.work_s + self.work_s * claims / self.claims


@dataclass(slots=True, kw_only=True)
class Bench:
    """Makes runs in a folder of its own and lets agents do them."""

    scratch: Path
    model: Path
    claims: Sequence[str]
    engine: str
    _number: Iterator[int]

    def measure(self, mode: str, unit_rows: int, n_claims: int) -> Measured:
        """Let two agents do a run."""
        run = self._plan(unit_rows, n_claims)
        began_s = time.time()
        agents = [self.start(run, "--context", mode) for _ in range(N_AGENTS)]
        for agent in agents:
            _, said = agent.communicate()
            if agent.returncode:
                sys.exit(f"an agent failed: {said.decode()}")
        noted = events(run)
        published = max(at for at, event in noted if event["event"] == "published")
        first = min(at - event["seconds"] for at, event in noted if event["event"] == "inferred")
        return Measured(
            mode=mode,
            unit_rows=unit_rows,
            claims=n_claims,
            seconds=published - began_s,
            work_s=published - first,
            loads=sum(event["event"] == "loaded" for _, event in noted),
        )

    def replace(self) -> dict[str, float]:
        """Kill an agent at work and start another one on its node; return how soon that is productive, in seconds."""
        run = self._plan(10, len(self.claims))
        victim = self.start(run)
        wait_for(run, "inferred")
        victim.kill()
        victim.communicate()
        began_s = time.time()
        heir = self.start(run, "--max-units", "2")
        heir.communicate()
        noted = [(at, event) for at, event in events(run) if at > began_s]
        first = next((at for at, event in noted if event["event"] == "inferred"), None)
        if first is None:
            sys.exit("the run ended before its agent was killed: pass more --claims")
        [load] = [event for _, event in noted if event["event"] == "loaded"]
        [fetch] = [event for _, event in noted if event["event"] == "fetched"]
        return {
            "productive_s": round(first - began_s, 2),
            "fetch_s": fetch["seconds"],
            "fetched_bytes": fetch["bytes"],
            "local_load_s": load["seconds"],
        }

    def start(self, run: Path, *options: str) -> "subprocess.Popen[bytes]":
        """Start an agent on this node's cache."""
        own = ("--engine", self.engine, "--cache", str(self.scratch / "cache"))
        command = [sys.executable, "-m", "fsctx", "agent", str(run), *own, *options]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _plan(self, unit_rows: int, n_claims: int) -> Path:
        run = self.scratch / f"run-{next(self._number)}"
        source = run.with_suffix(".jsonl")
        source.write_text("".join(json.dumps({"claim": claim}) + "\n" for claim in self.claims[:n_claims]))
        command = [sys.executable, "-m", "fsctx", "plan", str(source), "--run", str(run), "--model", str(self.model)]
        subprocess.run([*command, "--unit-rows", str(unit_rows)], check=True, stdout=subprocess.DEVNULL)
        return run


def events(run: Path) -> list[tuple[float, dict[str, Any]]]:
    """Return what all agents noted, and when."""
    lines = [line for log in (run / names.AGENTS).glob("*/events.jsonl") for line in log.read_text().splitlines()]
    noted = [json.loads(line) for line in lines]
    return sorted(((datetime.fromisoformat(e["time"]).timestamp(), e) for e in noted), key=lambda pair: pair[0])


def wait_for(run: Path, kind: str) -> None:
    """Wait until some agent noted an event of a kind."""
    while not any(event["event"] == kind for _, event in events(run)):
        time.sleep(0.2)


def report(found: Sequence[Measured], replaced: dict[str, float]) -> None:
    """Print the table and the JSON line."""
    n = max(m.claims for m in found)
    heads = ("unit rows", "claims", "seconds", "all claims", "loads", "claims/load", "full saves")
    print(f"{'mode':<9}" + "".join(f"{head:>12}" for head in heads))
    full = {m.unit_rows: m for m in found if m.mode == "full"}
    saved = {(m.unit_rows, m.mode): 1 - full[m.unit_rows].scaled_s(n) / m.scaled_s(n) for m in found}
    for m in sorted(found, key=lambda m: (m.unit_rows, MODES.index(m.mode))):
        print(
            f"{m.mode:<9}{m.unit_rows:>12}{m.claims:>12}{m.seconds:>12.1f}{m.scaled_s(n):>12.1f}{m.loads:>12}"
            f"{m.claims / m.loads:>12.1f}{saved[m.unit_rows, m.mode]:>12.1%}"
        )
    times = [m.seconds for m in full.values()]
    spread = max(times) / min(times) - 1
    print(f"full varies by {spread:.1%} over the unit sizes (goal: under 5 %; the paper: 13.6 %)")
    print("after a kill, the next agent on the node:", ", ".join(f"{k} {v}" for k, v in replaced.items()))
    document = {
        "measured": [asdict(m) for m in found],
        "full_spread": round(spread, 4),
        "reduction": {f"{mode} {rows}": round(share, 4) for (rows, mode), share in saved.items() if mode != "full"},
        "after_a_kill": replaced,
        "goals": GOALS,
    }
    print(json.dumps(document))


def read_claims(path: Path | None, n: int) -> list[str]:
    """Return distinct claims of a JSON Lines file, else of the ones that come with the package."""
    source = resources.files("fsctx.demo") / "claims.jsonl" if path is None else path
    lines = source.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["claim"] for line in lines))[:n]


def converted(gguf: Path, scratch: Path) -> Path:
    """Return a model folder made of a GGUF file, in a process of its own: this one stays small."""
    folder = scratch / "model"
    code = (
        "import sys, pathlib; from fsctx.agent.engines.hf.convert import convert_gguf;"
        "convert_gguf(*map(pathlib.Path, sys.argv[1:]))"
    )
    environ = {**os.environ, "TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(gguf), str(folder)], check=True, env=environ)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim`; else the demo's claims")
    parser.add_argument("--model", type=Path, default=Path(".model/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--engine", default="auto", help="what agents are told, say fake:rows_per_s=50,load_s=1")
    parser.add_argument("--claims", type=int, default=400)
    parser.add_argument("--unit-rows", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--loads", type=int, default=12, help="partial, agnostic: as many claims as need so many loads")
    options = parser.parse_args()
    claims = read_claims(options.path, options.claims)
    with tempfile.TemporaryDirectory() as scratch:
        model = converted(options.model, Path(scratch)) if options.model.suffix == ".gguf" else options.model
        bench = Bench(
            scratch=Path(scratch), model=model, claims=claims, engine=options.engine, _number=itertools.count()
        )
        bench.measure("full", 100, min(4, len(claims)))  # fills the node's cache
        found = []
        for unit_rows, mode in itertools.product(options.unit_rows, MODES):
            few = len(claims) if mode == "full" else min(len(claims), options.loads * unit_rows)
            found.append(bench.measure(mode, unit_rows, few))
        report(found, bench.replace())
    return 0


if __name__ == "__main__":
    sys.exit(main())
