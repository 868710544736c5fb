"""Faults planted into the real code. Each must be caught by a law: a simulation that does not bite shows nothing."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from simulation import planted_leases as on_leases
from simulation import planted_results as on_results
from simulation import planted_sweeps as on_sweeps
from simulation.plan import Plan, draw
from simulation.planted import Planted
from simulation.seeds import Failure, failure_of
from simulation.sharedfs import Weather
from simulation.world import Shape

STORM = Weather(error=0.03, lost_reply=0.08, repeated=0.04, late=0.08, latency_s=0.01)
CALM = {
    "weather": Weather(latency_s=0.01),
    **dict.fromkeys(("n_kills", "n_freezes", "n_retries", "n_junk"), 0),
    **dict.fromkeys(("has_damage", "has_planted_link", "is_full_for_a_while", "has_poison"), False),
}

SWEEP = {"shape": Shape(n_rows=8, unit_rows=1, n_tasks=3, has_sweep=True), "n_agents": 4, "n_hosts": 3}

ALONE = {"n_agents": 1, **dict.fromkeys(("n_newcomers", "n_kills", "n_signals", "has_stop"), 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault. `seed` is known to catch it; others do too."""

    name: str
    why: str
    """What somebody could have thought."""
    plants: tuple[Planted, ...] = ()
    stress: dict[str, Any] = field(default_factory=dict)
    """What makes histories that may show it: fields of the plan."""
    laws: str
    """Numbers of the laws that it breaks."""
    seed: int

    def plan(self, seed: int) -> Plan:
        """Return a history that may show it."""
        return replace(draw(seed), **self.stress)

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Plant it meanwhile."""
        with contextlib.ExitStack() as stack:
            for plant in self.plants:
                original: Callable[..., Any] = getattr(plant.where, plant.name)
                stack.enter_context(patch.object(plant.where, plant.name, plant.make(original)))
            yield

    def caught(self, seed: int) -> Failure | None:
        """Return the law broken in a history, if it is one that the fault breaks."""
        with self.planted():
            failure = failure_of(self.plan(seed))
        is_expected = failure is not None and re.match(rf"LawBroken: law ({self.laws}):", failure.what)
        return failure if is_expected else None


MUTANTS = (
    Mutant(
        name="lease removed on completion",
        why="A unit that is done needs no lease any more.",
        plants=on_leases.removed_on_completion,
        stress={"n_agents": 4, "n_hosts": 3, "compacts": False},
        laws="4|7",
        seed=2,
    ),
    Mutant(
        name="state read by looking names up",
        why="Whether a unit is leased or done can be asked of its names, one by one.",
        plants=on_leases.read_by_lookups,
        stress={**CALM, "n_agents": 3, "n_hosts": 2, "n_signals": 0, "has_stop": False},
        laws="1|7|8",
        seed=0,
    ),
    Mutant(
        name="expiry by modification time",
        why="A session whose file is older than the time to live, by this machine's clock, is dead.",
        plants=on_leases.expiry_by_mtime,
        stress={"n_agents": 3},
        laws="7",
        seed=1,
    ),
    Mutant(
        name="generation reused",
        why="An orphan's lease is removed and created again.",
        plants=on_leases.generation_reused,
        stress={"n_kills": 3, "n_agents": 4, "compacts": False},
        laws="4|7",
        seed=0,
    ),
    Mutant(
        name="judged by one look",
        why="A session that reads the same as at the start of the watch is silent.",
        plants=on_leases.judged_by_one_look,
        stress={"n_agents": 3},
        laws="7",
        seed=1,
    ),
    Mutant(
        name="judged on waking",
        why="A watcher goes by its clock, whether it looked lately or not.",
        plants=on_leases.judged_on_waking,
        stress={"n_agents": 3, "n_hosts": 2, "n_freezes": 3, "rows_per_s": 0.02},
        laws="7",
        seed=18,
    ),
    Mutant(
        name="judgement kept for ever",
        why="Who was silent once is silent.",
        plants=on_leases.judgement_kept,
        stress={"weather": Weather(latency_s=0.01), "n_agents": 4, "n_hosts": 3, "n_freezes": 4, "rows_per_s": 0.02},
        laws="7",
        seed=468,
    ),
    Mutant(
        name="lease error taken for failure",
        why="A creation that raised an error did not happen.",
        plants=on_leases.error_is_failure,
        stress={**ALONE, "weather": STORM},
        laws="1",
        seed=10,
    ),
    Mutant(
        name="lease error taken for success",
        why="A creation that raised an error happened all the same, most of the time.",
        plants=on_leases.error_is_success,
        stress={"weather": STORM, "n_agents": 4, "n_hosts": 3},
        laws="1|2|4|7",
        seed=0,
    ),
    Mutant(
        name="uncertain lease not given back",
        why="A lease that may be ours without our knowing is nobody's business.",
        plants=on_leases.never_given_back,
        stress={**ALONE, "weather": STORM},
        laws="1",
        seed=13,
    ),
    Mutant(
        name="empty lease never taken over",
        why="A lease that names nobody is about to be written.",
        plants=on_leases.nameless_is_alive,
        stress={"weather": replace(STORM, repeated=0.2), "n_agents": 2},
        laws="1",
        seed=1,
    ),
    Mutant(
        name="retry removes the failure first",
        why="Failure record and lease can be changed in any order.",
        plants=on_leases.retry_out_of_order,
        stress={**CALM, **ALONE, "has_damage": True, "n_retries": 12, "rows_per_s": 0.05},
        laws="1",
        seed=61,
    ),
    Mutant(
        name="order obeyed for ever",
        why="A stop order in the run's folder means that the run is stopped.",
        plants=on_leases.order_for_ever,
        stress={"has_stop": True, "rows_per_s": 0.02},
        laws="1",
        seed=10,
    ),
    Mutant(
        name="LEFT said before the last rows are saved",
        why="An agent that leaves says so at once.",
        plants=on_leases.left_too_early,
        stress={"n_signals": 2, "rows_per_s": 0.05},
        laws="2|4|7|10",
        seed=4,
    ),
    Mutant(
        name="SIGTERM heard between visits only",
        why="A visit is short, so it is finished first.",
        plants=on_leases.signal_heard_late,
        stress={**CALM, "n_signals": 3, "rows_per_s": 0.02},
        laws="10",
        seed=4,
    ),
    Mutant(
        name="nothing saved on leaving",
        why="The next holder computes the unit again anyway.",
        plants=on_leases.nothing_saved,
        stress={**CALM, "n_signals": 3, "rows_per_s": 0.05},
        laws="10",
        seed=4,
    ),
    Mutant(
        name="published by rename",
        why="A rename is atomic.",
        plants=on_results.by_rename,
        stress={"n_freezes": 3, "n_agents": 4, "n_hosts": 3, "publish": "symlink", "compacts": False},
        laws="2",
        seed=1,
    ),
    Mutant(
        name="published by link where link is not exclusive",
        why="All filesystems have hard links.",
        stress={
            "publish": "link",
            "weather": replace(STORM, is_link_exclusive=False),
            "n_freezes": 3,
            "n_agents": 4,
            "compacts": False,
        },
        laws="2",
        seed=12,
    ),
    Mutant(
        name="published before the verdicts are whole",
        why="The name may stand first, as its file follows.",
        plants=on_results.before_whole,
        laws="2",
        seed=0,
    ),
    Mutant(
        name="written again after publication was tried",
        why="A publication that failed is tried again from the start.",
        plants=on_results.written_again,
        stress={"weather": STORM, "publish": "symlink"},
        laws="2",
        seed=8,
    ),
    Mutant(
        name="publication error taken for success",
        why="A symlink whose creation raised an error is there, most of the time.",
        plants=on_results.error_is_success,
        stress={"weather": STORM, "publish": "symlink"},
        laws="1",
        seed=30,
    ),
    Mutant(
        name="published judged by any result file",
        why="Where a file of verdicts stands, the unit is done.",
        plants=on_results.any_file_is_done,
        stress={"weather": STORM, "n_kills": 3, "n_agents": 3},
        laws="1",
        seed=51,
    ),
    Mutant(
        name="target followed out of its folder",
        why="A symlink is followed, wherever it points.",
        plants=on_results.followed_out,
        stress={"has_planted_link": True, "n_readers": 2, "publish": "symlink", "compacts": False},
        laws="1|2",
        seed=10,
    ),
    Mutant(
        name="partial adopted without a look at whose it is",
        why="A file of that name was saved by an agent.",
        plants=on_results.adopted_unseen,
        stress={"n_junk": 8, "n_kills": 3, "rows_per_s": 0.05, "compacts": False},
        laws="1|2",
        seed=0,
    ),
    Mutant(
        name="partial's rows not held against the slice",
        why="A partial of this unit has rows of this unit.",
        plants=on_results.rows_unchecked,
        stress={"n_junk": 8, "n_kills": 3, "rows_per_s": 0.05, "compacts": False},
        laws="1|2",
        seed=7,
    ),
    Mutant(
        name="adopted rows computed again",
        why="Rows may be computed twice, as they come out the same.",
        plants=on_results.adopted_and_computed,
        stress={"n_signals": 3, "save_s": 5.0, "rows_per_s": 0.05},
        laws="1|2|7",
        seed=4,
    ),
    Mutant(
        name="a filesystem's error taken for the unit's failure",
        why="Claims that cannot be read are damaged.",
        plants=on_results.error_is_damage,
        stress={"weather": STORM},
        laws="11",
        seed=51,
    ),
    Mutant(
        name="a listed file that cannot be opened yet taken for absent",
        why="What is not there was not published.",
        plants=on_results.absent_is_unpublished,
        stress={"compacts": True, "n_readers": 6, "n_hosts": 3, "has_stop": False},
        laws="2",
        seed=3454,
    ),
    Mutant(
        name="compacted after removal",
        why="What was read into memory may be removed.",
        plants=on_results.removed_before_merged,
        stress={"compacts": True},
        laws="2",
        seed=74,
    ),
    Mutant(
        name="a rung decided without its last units",
        why="Whoever finds nothing free decides: what is still being computed changes little.",
        plants=on_sweeps.without_the_last_units,
        stress=SWEEP,
        laws="1",
        seed=0,
    ),
    Mutant(
        name="units beyond the open rung leased",
        why="What is free may be taken.",
        plants=on_sweeps.beyond_the_open_rung,
        stress=SWEEP,
        laws="1",
        seed=0,
    ),
    Mutant(
        name="the latest decision counts",
        why="All agents decide the same, so any decision may stand.",
        plants=on_sweeps.latest_decision_counts,
        stress=SWEEP,
        laws="2",
        seed=23,
    ),
)
