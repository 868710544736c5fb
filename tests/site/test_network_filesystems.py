"""Real agents on three clients of real network filesystems, one killed, one frozen for too long: the laws hold."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from networks import rpc, scenario
from networks.beds import Client, bed_of, clients_of
from networks.scenario import N_ROWS, UNIT_ROWS, Outcome, run_story

from fsctx.agent.assembly import BEATS_PER_TTL

QUICK = ("stale", "nfs v3", "nfs v41")
OTHERS = ("moosefs", "gluster", "gluster-replica")
VICTIM, ZOMBIE, SURVIVOR = "h1", "h2", "h3"
N_UNITS = N_ROWS // UNIT_ROWS
MAX_CALLS_PER_UNIT = 12

pytestmark = pytest.mark.site


class Beds:
    """Beds that are up."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._up: dict[str, Path] = {}

    def clients(self, name: str) -> list[Client]:
        """Return the clients of a bed, bringing it up if need be."""
        kind, _, way = name.partition(" ")
        if kind not in self._up:
            self._up[kind] = self._stack.enter_context(bed_of(kind))
        return clients_of(kind, self._up[kind], way)


@pytest.fixture(scope="module")
def beds() -> Iterator[Beds]:
    with ExitStack() as stack:
        yield Beds(stack)


def stories() -> list[object]:
    """Name a bed and the form of the run each."""
    quick = [*((bed, "plain") for bed in QUICK), ("nfs v3", "compacting")]
    others = [*((bed, "plain") for bed in OTHERS), *((bed, "compacting") for bed in ("stale", "nfs v41", *OTHERS))]
    marked = [pytest.param(story, id=" ".join(story), marks=pytest.mark.site_quick) for story in quick]
    return [*marked, *(pytest.param(story, id=" ".join(story)) for story in others)]


@pytest.fixture(scope="module", params=stories())
def outcome(request: pytest.FixtureRequest, beds: Beds) -> Outcome:
    bed, form = request.param
    told = run_story(beds.clients(bed), f"{form}-{bed.replace(' ', '-')}", form=form)
    print(bed, form, {what: round(at_s, 1) for what, at_s in told.seconds.items()})  # noqa: T201
    return told


def test_every_claim_ends_in_exactly_one_row(outcome: Outcome) -> None:
    assert (outcome.summary["rows"], outcome.summary["missing"], outcome.summary["duplicates"]) == (N_ROWS, 0, 0)
    assert [row["claim"] for row in outcome.rows] == [f"Claim {row}." for row in range(N_ROWS)]
    assert {row["status"] for row in outcome.rows} == {"ok"}


def test_every_unit_is_published_under_one_name(outcome: Outcome) -> None:
    if outcome.end["compacted"]:
        assert (outcome.end["links"], outcome.end["compacted"]) == ([], [0])
    else:
        assert outcome.end["links"] == list(range(N_UNITS))


def test_published_rows_never_change_or_disappear(outcome: Outcome) -> None:
    for earlier, later in zip(outcome.looks, [*outcome.looks[1:], outcome.end], strict=True):
        assert earlier["published"].items() <= later["published"].items()


def test_the_verdicts_are_those_of_an_agent_alone(outcome: Outcome) -> None:
    assert [row["verdict"] for row in outcome.rows] == scenario.expected_verdicts(N_ROWS)


def test_an_agent_that_lost_its_leases_changes_nothing(outcome: Outcome) -> None:
    assert len(outcome.before_waking["published"]) == N_UNITS
    assert outcome.before_waking["published"] == outcome.end["published"]
    assert outcome.agent_on(ZOMBIE)["rows_lost"] > 0


def test_nothing_is_taken_from_an_agent_whose_heart_beats(outcome: Outcome) -> None:
    assert outcome.robbed() <= {VICTIM, ZOMBIE}


def test_a_silent_agent_keeps_its_leases_for_the_time_to_live(outcome: Outcome) -> None:
    last_beat_before_s = scenario.TTL_S / BEATS_PER_TTL
    assert outcome.seconds["done"] - outcome.seconds["frozen"] >= scenario.TTL_S - last_beat_before_s


def test_the_agents_that_live_leave_when_all_is_done(outcome: Outcome) -> None:
    assert {host: code for host, (code, _) in outcome.ended.items()} == {ZOMBIE: 0, SURVIVOR: 0}


def test_the_model_stays_on_the_device(outcome: Outcome) -> None:
    assert {outcome.agent_on(host)["loads"] for host in (ZOMBIE, SURVIVOR)} == {1}


@pytest.mark.site_quick
@pytest.mark.parametrize("way", ["v3", "v41"])
def test_a_unit_costs_few_metadata_calls_on_the_wire(beds: Beds, way: str) -> None:
    client = beds.clients(f"nfs {way}")[0]
    calls = rpc.calls_of_a_run(client, f"alone-{way}", n_units=N_UNITS)
    per_unit = {kind: round(number / N_UNITS, 2) for kind, number in calls.items()}
    metadata = rpc.metadata_calls(calls) / N_UNITS
    print(f"NFS {way}: {metadata:.2f} metadata calls a unit; all: {per_unit}")  # noqa: T201
    assert metadata <= MAX_CALLS_PER_UNIT
