"""How fast a model's files are hashed, beside how fast the same file is read once: cold (from the disk) and warm.

    python bench/hash.py [--mib 1024] [--folder DIR] [--rounds 3]

Goal: hashing takes place at 0.8 of the rate of reading, or more. The file is new and random; before each cold
measurement its pages are dropped (posix_fadvise). Reading and hashing take turns, and medians are compared. On a
machine that is busy otherwise, look at `hash_cpu_mb_per_s`: what one core hashes.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fsctx.cache.hashing import READ_BYTES, describe
from fsctx.coordinator.plan.contexts import CHUNK_BYTES

GOAL = 0.8


def write(path: Path, mib: int) -> None:
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def drop(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    buffer = bytearray(READ_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def hash_it(path: Path) -> None:
    describe(path.parent, [path.name], CHUNK_BYTES)


def mb_per_s(work: Callable[[Path], None], path: Path, *, is_cold: bool) -> float:
    if is_cold:
        drop(path)
    began_s = time.perf_counter()
    work(path)
    return path.stat().st_size / (time.perf_counter() - began_s) / 1e6


def cpu_mb_per_s(path: Path) -> float:
    began_s = time.process_time()
    hash_it(path)
    return round(path.stat().st_size / (time.process_time() - began_s) / 1e6, 1)


def measure(path: Path, rounds: int) -> dict[str, float]:
    """Return the median rates, in MB/s."""
    kinds = [(kind, work, kind == "cold") for kind in ("cold", "warm") for work in (read, hash_it)]
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind, work, is_cold in kinds:
            name = f"{kind}_{'read' if work is read else 'hash'}"
            rates.setdefault(name, []).append(mb_per_s(work, path, is_cold=is_cold))
    return {name: round(statistics.median(found), 1) for name, found in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure; else the temporary folder")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "weights"
        write(path, given.mib)
        rates = measure(path, given.rounds)
        rates["hash_cpu_mb_per_s"] = cpu_mb_per_s(path)
    print(f"{'':5} {'read once':>12} {'hashed':>12} {'ratio':>7}")
    ratios = {}
    for kind in ("cold", "warm"):
        ratios[kind] = round(rates[f"{kind}_hash"] / rates[f"{kind}_read"], 2)
        print(f"{kind:5} {rates[f'{kind}_read']:>7.0f} MB/s {rates[f'{kind}_hash']:>7.0f} MB/s {ratios[kind]:>7}")
    document = {"bench": "hash", "mib": given.mib, **rates, "ratio": ratios["cold"], "goal": GOAL}
    print(json.dumps({**document, "has_met_goal": ratios["cold"] >= GOAL, "cores": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
