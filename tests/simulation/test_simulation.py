"""Histories in which the laws hold (FSCTX_SEEDS says how many); and one seed is one history anywhere."""

import os
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from simulation import __main__ as program
from simulation.clockwork import Clockwork, Process, Stuck
from simulation.history import run
from simulation.mutants import MUTANTS
from simulation.plan import draw
from simulation.seeds import Failure, changed, differences, failures_of, shrunk
from simulation.trace import Trace

N_SEEDS = int(os.environ.get("FSCTX_SEEDS", "10000"))


def _digest(seed: int) -> str:
    run(draw(seed), trace := Trace())
    return trace.digest


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_laws_hold_in_every_history() -> None:
    jobs = len(os.sched_getaffinity(0))
    found = [failure for _, failure in failures_of(range(N_SEEDS), jobs=jobs) if failure is not None]
    assert not found, f"{len(found)} histories break a law; replay the first: {found[0].what}\n{found[0].command}"


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_a_seed_gives_the_same_history_every_time(seed: int) -> None:
    assert _digest(seed) == _digest(seed)


def test_a_seed_gives_the_same_history_in_another_process_with_other_hashes() -> None:
    seeds = range(20, 32)
    script = (
        "from simulation.history import run; from simulation.plan import draw; from simulation.trace import Trace\n"
        f"for seed in {list(seeds)}:\n    t = Trace(); run(draw(seed), t); print(t.digest)"
    )
    tests = Path(__file__).parent.parent
    other = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
        cwd=tests,
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == [_digest(seed) for seed in seeds]


@pytest.mark.parametrize("seed", range(8))
def test_a_claim_that_kills_whoever_computes_it_is_given_up_and_no_other(seed: int) -> None:
    run(replace(draw(seed), has_poison=True))


def test_a_wait_that_is_nothing_beside_the_time_of_day_moves_the_clock_on() -> None:
    clockwork = Clockwork(Random(0))
    seen: list[float] = []

    def wait_often() -> None:
        for _ in range(3):
            clockwork.wait(deque(), 1e-14)
            seen.append(clockwork.now_s)

    clockwork.spawn(Process(name="a", host="h"), wait_often, after_s=100.0)
    clockwork.run(lambda: False, deadline_s=200.0)
    assert 100.0 < seen[0] < seen[1] < seen[2] < 101.0


def test_a_history_that_goes_round_at_one_moment_fails() -> None:
    clockwork = Clockwork(Random(0))

    def wake_each_other() -> None:
        while True:
            clockwork.pause(0.0)

    for name in "ab":
        clockwork.spawn(Process(name=name, host="h"), wake_each_other)
    with pytest.raises(Stuck, match="steps at 0"):
        clockwork.run(lambda: False, deadline_s=200.0)
    clockwork.close()


def test_a_failing_history_is_made_small_and_the_command_that_is_printed_replays_it() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "published before the verdicts are whole")
    with mutant.planted():
        failure = mutant.caught(mutant.seed)
        assert failure is not None
        small = shrunk(failure)
        assert small.kind == failure.kind
        assert small.plan.n_kills + small.plan.n_freezes + small.plan.n_readers + small.plan.n_junk == 0
        replayed = CliRunner().invoke(program.main, small.command.split("simulation ")[1].split())
    assert replayed.exit_code == 1
    assert "law 2" in replayed.output
    assert "create    leases/000000/00000000.0" in replayed.output


def test_a_history_is_replayed_with_what_happened_in_it() -> None:
    replayed = CliRunner().invoke(program.main, ["--seed", "3", "--trace"])
    assert replayed.exit_code == 0
    assert "create    leases/000000/00000000.0" in replayed.output
    assert "all laws hold" in replayed.output


def test_differences_between_plans_are_written_and_read_back() -> None:
    drawn = draw(1)
    other = changed(changed(changed(drawn, "n_kills", "9"), "weather.hang", "0.5"), "has_stop", str(not drawn.has_stop))
    found = dict(differences(drawn, other))
    assert found == {"n_kills": 9, "weather.hang": 0.5, "has_stop": not drawn.has_stop}
    assert Failure(other, "x").command.startswith("cd tests && python -m simulation --seed 1 --with ")


def test_several_histories_are_lived_through_in_other_processes() -> None:
    lived = CliRunner().invoke(program.main, ["--seeds", "0:6", "--jobs", "2"])
    assert lived.exit_code == 0, lived.output
    assert "6 histories" in lived.output
