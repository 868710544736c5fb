"""The simulation bites: each fault that is planted into the real code breaks a law in some history."""

import itertools

import pytest

from simulation.mutants import MUTANTS, Mutant
from simulation.seeds import failure_of

SEARCHED = 400
"""So many histories are tried where the seed that is known to show a fault does not any more."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_planted_fault_is_caught_by_a_law(mutant: Mutant) -> None:
    seeds = itertools.chain([mutant.seed], range(SEARCHED))
    assert any(mutant.caught(seed) for seed in seeds), f"{mutant.name} ({mutant.why}) breaks no law in {SEARCHED} seeds"


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.plants], ids=lambda mutant: mutant.name)
def test_the_same_history_without_the_planted_fault_breaks_no_law(mutant: Mutant) -> None:
    assert failure_of(mutant.plan(mutant.seed)) is None


def test_there_are_many_of_them_each_with_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 16
