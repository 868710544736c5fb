"""What coordination by files costs, and how it grows: five parts, a table, and one JSON document as the last line.

a: one agent whose engine takes no time, against a bare loop of the same system calls;
b: two durable workers against two of Parsl's (another interpreter: `--parsl-python`);
c: fleets of agents: calls of the filesystem per unit; d: a run of a million units; e: a preempted fleet, simulated.

    python bench/coordination.py [--parts a,c,e] [--full] [--folder DIR] [--parsl-python PATH]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # runs are fabricated as in tests

from coordinating import fleets, million, neighbour, preempted, speed


def measures(*, is_full: bool, parsl_python: Path | None) -> dict[str, Callable[[Path], dict[str, object]]]:
    """Return part → what measures it in a folder."""
    n_units = 4000 if is_full else 600

    def against_parsl(folder: Path) -> dict[str, object]:
        if parsl_python is None:
            return {"skipped": "no --parsl-python: the interpreter of a virtual environment with parsl and pyarrow"}
        return neighbour.measure(folder, n_units=n_units, parsl_python=parsl_python)

    sizes = (1, 4, 16, 64) if is_full else (1, 4)
    least, many = (5120, 1_000_000) if is_full else (512, 50_000)
    units_per_agent = 256 if is_full else 128
    fleet = {"n_agents": 10_000, "n_units": 1_000_000} if is_full else {"n_agents": 500, "n_units": 50_000}
    return {
        "a": lambda folder: speed.measure(folder, n_units=n_units),
        "b": against_parsl,
        "c": lambda folder: fleets.measure(folder, fleets=sizes, units_per_agent=units_per_agent, least_units=least),
        "d": lambda folder: million.measure(folder, n_units=many),
        "e": lambda _: {f"units of {s:.0f} s": preempted.measure(**fleet, unit_s=s) for s in (30.0, 120.0)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="a,b,c,d,e")
    parser.add_argument("--full", action="store_true", help="the sizes that docs/coordination.md tells of")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--parsl-python", type=Path)
    args = parser.parse_args()
    found: dict[str, object] = {"benchmark": "coordination", "full": args.full}
    all_parts = measures(is_full=args.full, parsl_python=args.parsl_python)
    for part in args.parts.split(","):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            found[part] = measured = all_parts[part](Path(folder))
        for name, value in measured.items():
            print(f"{part}  {name:<24}{value}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
