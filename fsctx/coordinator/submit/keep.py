"""How many pilots to add so that a number of them is there while work is left."""

from dataclasses import dataclass

from fsctx.coordinator.progress import RunState
from fsctx.coordinator.status import read_status
from fsctx.coordinator.submit.base import BatchSystem
from fsctx.coordinator.submit.record import read_submissions
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """How many pilots are missing, and the reason where none is."""

    n: int
    why_none: str = ""
    is_over: bool = False
    """Nothing will be missing later either."""


def find_shortage(store: Store, system: BatchSystem, keep: int) -> Shortage:
    """Compare the pilots that this batch system has with those wanted, and with the units that are left.

    Raises:
        Unreachable: the batch system does not answer: more pilots would be added to an unknown number.
    """
    status = read_status(store)
    if status.state in (RunState.DONE, RunState.INCOMPLETE):
        return Shortage(n=0, why_none=f"the run is {status.state}", is_over=True)
    if status.state in (RunState.STOPPED, RunState.DRAINING):
        return Shortage(n=0, why_none=f"the run is {status.state}: submit with -n to go on", is_over=True)
    pilots = [pilot for s in read_submissions(store) if s.batch == system.name for pilot in s.pilots]
    there = sum(seen.queued + seen.running + seen.held for seen in system.query(pilots))
    wanted = min(keep, status.units.free + status.units.leased)
    if there >= wanted:
        return Shortage(n=0, why_none=f"{there} pilot(s) are there")
    return Shortage(n=wanted - there)
