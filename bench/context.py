"""What keeping the context is worth: a real model, two real agents on this machine, three ways, three unit sizes.

    full       files on the node, model resident from unit to unit
    partial    files on the node; for each unit a new process, which imports the engine and loads the model
    agnostic   the same, and the files as the user has them on the shared filesystem (here: this disk) each time

The model is SmolLM2-135M as it is had, a GGUF file: agnostic dequantises it for each unit, the others convert it once.
That is in the time that is measured: each run begins with a node that has nothing (but this machine's page cache).

Seconds are from the first agent's start to the last publication, as the agents' event logs tell; in full, of the
faster of `--repeats` runs. Where loading for each unit would take hours, the first `--units` are done. What all would
take is then reckoned: the time to an agent's first unit, and for each further one what those that were done took. The
table marks such times with ~.

At last an agent is killed (SIGKILL) and another one started on the same cache: `productive_s` is the time from its
start to its first unit being inferred, `local_load_s` what loading took it.
The last line is one JSON document. On two idle cores some 15 minutes.

    python bench/context.py [CLAIMS.jsonl] [--model PATH|fake] [--claims 400] [--unit-rows 1 10 100] [--units 6]
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinating import pilots
from rivals.claims import read_claims

from fsctx.protocol import names

N_AGENTS = 2
GOALS = {"full_spread": 0.05, "reduction_at_10": 0.72}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: all units of a task, or the first of them."""

    mode: str
    unit_rows: int
    claims: int
    n_units: int
    """Of all claims."""
    n_done: int
    """Units that this run had."""
    seconds: float
    unit_s: float
    """From the end of one visit to the end of the next, at one agent. Less than full: a visit is a unit."""
    first_s: float
    """To the end of an agent's first visit."""
    loads: int

    @property
    def is_reckoned(self) -> bool:
        """Whether not all units were done."""
        return self.n_done < self.n_units

    @property
    def all_s(self) -> float:
        """What all claims take."""
        if not self.is_reckoned:
            return self.seconds
        return self.first_s + self.unit_s * (self.n_units / N_AGENTS - 1)


@dataclass(slots=True, kw_only=True)
class Bench:
    """Makes runs in a folder of its own, each with a node of its own, and lets agents do them."""

    scratch: Path
    model: Path
    claims: Sequence[str]
    engine: str
    _number: Iterator[int] = field(default_factory=itertools.count)

    def measure(self, mode: str, unit_rows: int, most_units: int) -> Measured:
        """Let two agents do a run of so many units at most."""
        n_units = -(-len(self.claims) // unit_rows)
        run = self._plan(unit_rows, self.claims[: most_units * unit_rows])
        began_s = time.time()
        agents = [self.start(run, "--context", mode) for _ in range(N_AGENTS)]
        for agent in agents:
            _, said = agent.communicate()
            if agent.returncode:
                sys.exit(f"an agent failed: {said.decode()}")
        noted = events(run)
        ends = [[at for at, event in own if event["event"] == "inferred"] for own in noted.values()]
        rates = [(one[-1] - one[0]) / (len(one) - 1) for one in ends if len(one) > 1]
        told = [(at, event["event"]) for own in noted.values() for at, event in own]
        return Measured(
            mode=mode,
            unit_rows=unit_rows,
            claims=min(len(self.claims), most_units * unit_rows),
            n_units=n_units,
            n_done=min(n_units, most_units),
            seconds=max(at for at, event in told if event == "published") - began_s,
            unit_s=statistics.mean(rates) if rates else 0.0,
            first_s=statistics.mean(one[0] for one in ends if one) - began_s,
            loads=sum(event == "loaded" for _, event in told),
        )

    def replace(self) -> dict[str, float]:
        """Kill an agent at work and start another one on its node; return how soon that is productive, in seconds."""
        run = self._plan(10, self.claims)
        victim = self.start(run)
        wait_for(run, "inferred")
        victim.kill()
        victim.communicate()
        began_s = time.time()
        heir = self.start(run, "--max-units", "2")
        heir.communicate()
        noted = [(at, event) for own in events(run).values() for at, event in own if at > began_s]
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
        """Start an agent on the run's node."""
        own = ("--engine", self.engine, "--cache", str(run.with_suffix(".cache")))
        command = [sys.executable, "-m", "fsctx", "agent", str(run), *own, *options]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _plan(self, unit_rows: int, claims: Sequence[str]) -> Path:
        run = self.scratch / f"run-{next(self._number)}"
        return pilots.plan(run, claims, "--unit-rows", str(unit_rows), model=self.model)


def events(run: Path) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Return what each agent noted, and when."""
    logs = (run / names.AGENTS).glob("*/events.jsonl")
    noted = {log.parent.name: [json.loads(line) for line in log.read_text().splitlines()] for log in logs}
    return {
        agent: [(datetime.fromisoformat(event["time"]).timestamp(), event) for event in own]
        for agent, own in noted.items()
    }


def wait_for(run: Path, kind: str) -> None:
    """Wait until some agent noted an event of a kind."""
    while not any(event["event"] == kind for own in events(run).values() for _, event in own):
        time.sleep(0.2)


def head() -> None:
    """Print the table's head."""
    heads = ("unit rows", "units done", "seconds", "all claims", "loads", "claims/load", "full saves")
    print(f"{'mode':<9}" + "".join(f"{head:>13}" for head in heads))


def row(m: Measured, full: Measured) -> None:
    """Print a row of the table."""
    done, whole = f"{m.n_done} of {m.n_units}", f"{'~' if m.is_reckoned else ''}{m.all_s:.1f}"
    print(
        f"{m.mode:<9}{m.unit_rows:>13}{done:>13}{m.seconds:>13.1f}{whole:>13}{m.loads:>13}"
        f"{m.claims / m.loads:>13.1f}{1 - full.all_s / m.all_s:>13.1%}",
        flush=True,
    )


def report(found: Sequence[Measured], replaced: dict[str, float]) -> None:
    """Print what follows from the table, and the JSON line."""
    full = {m.unit_rows: m for m in found if m.mode == "full"}
    times = [m.all_s for m in full.values()]
    spread = max(times) / min(times) - 1
    saved = {
        f"{m.mode} {m.unit_rows}": round(1 - full[m.unit_rows].all_s / m.all_s, 4) for m in found if m.mode != "full"
    }
    print(f"full varies by {spread:.1%} over the unit sizes (goal: under 5 %; the paper: 13.6 %)")
    print("after a kill, the next agent on the node:", ", ".join(f"{k} {v}" for k, v in replaced.items()))
    document = {
        "bench": "context",
        "measured": [asdict(m) | {"all_s": m.all_s, "is_reckoned": m.is_reckoned} for m in found],
        "full_spread": round(spread, 4),
        "reduction": saved,
        "after_a_kill": replaced,
        "goals": GOALS,
    }
    print(json.dumps(document))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="JSON Lines with `claim`; else the demo's claims")
    parser.add_argument("--model", type=Path, default=Path(".model/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--engine", default="auto", help="what agents are told, say fake:rows_per_s=50,load_s=1")
    parser.add_argument("--claims", type=int, default=400)
    parser.add_argument("--unit-rows", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument(
        "--units", type=int, default=6, help="partial, agnostic: at most so many units of a run are done"
    )
    parser.add_argument("--repeats", type=int, default=2, help="full: the faster of so many runs")
    options = parser.parse_args()
    claims = read_claims(options.path, options.claims)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(scratch=Path(scratch), model=options.model, claims=claims, engine=options.engine)
        head()
        for unit_rows in options.unit_rows:
            runs = [bench.measure("full", unit_rows, len(claims)) for _ in range(options.repeats)]
            full = min(runs, key=lambda m: m.all_s)
            own = [full, *(bench.measure(mode, unit_rows, options.units) for mode in ("partial", "agnostic"))]
            for m in own:
                row(m, full)
            found += own
        report(found, bench.replace())
    return 0


if __name__ == "__main__":
    sys.exit(main())
