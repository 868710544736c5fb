"""What is done ahead of the device: leasing the next units, reading and tokenising them."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsctx.agent.careful import CAREFUL_FROM
from fsctx.agent.decide import Leave, Wait
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.residency import Residency
from fsctx.agent.runfiles import check_still_there
from fsctx.agent.saver import Saver
from fsctx.agent.scout import Found, Scout
from fsctx.agent.slices import Slices
from fsctx.agent.threads import Event
from fsctx.agent.unitwork import UnitWork, begin
from fsctx.agent.visit import Visit
from fsctx.errors import Damaged, Missing, StoreError, Unfit
from fsctx.protocol.geometry import Geometry, Place
from fsctx.protocol.names import LeaseId

STORE_RETRY_S = 2.0
"""After an error of the filesystem so long is waited before it is asked again."""


@dataclass(slots=True, kw_only=True)
class Ahead:
    """Prepares visits. One background thread uses it."""

    geometry: Geometry
    scout: Scout
    slices: Slices
    saver: Saver
    residency: Residency
    heartbeat: Heartbeat
    events: EventLog
    columns: Callable[[int], Sequence[str]]
    """Task → the input's columns that its template uses."""
    clock: Callable[[], float]
    wake: Event
    """Ends a wait for work; cleared by it."""
    rest: Callable[[], None]
    """Told at each such wait."""
    say: Callable[[str], None]
    n_damaged: int = 0
    """Units given up because their claims cannot be read."""
    _told: str = ""
    """What a person was told last."""

    def next_visit(self, wanted: int) -> Visit | Leave:
        """Take up to `wanted` units, waiting for them if need be, or tell why to leave."""
        while True:
            found = self._find(wanted)
            if isinstance(found, Leave):
                return found
            visit = self._open(found)
            if visit.works:
                bound = self.residency.bound(visit.task)
                if bound is not None and not visit.is_careful:
                    with contextlib.suppress(Unfit):  # the engine has ended: encoded once it is loaded again
                        visit.encode(bound)
                return visit

    def go_round(self) -> None:
        """Watch others' leases while the device works."""
        try:
            self.scout.go_round(self.clock())
        except StoreError as error:
            self.events.add("store_error", error=str(error))

    def first_task(self) -> int | None:
        """Return the task of a free unit, without taking it; None if none is free, or the filesystem refuses."""
        try:
            return self.scout.first_task(self.clock())
        except StoreError as error:
            self.events.add("store_error", error=str(error))
            return None

    def _find(self, wanted: int) -> Found | Leave:
        while True:
            try:
                step = self.scout.step(self.clock(), wanted)
            except StoreError as error:
                self._complain(error)
                if isinstance(error, Missing):
                    check_still_there(self.scout.store)
                step = Wait(STORE_RETRY_S)
            match step:
                case Found() | Leave():
                    return step
                case Wait(seconds):
                    self.rest()
                    self.wake.wait(seconds)
                    self.wake.clear()
                case None:
                    continue

    def _open(self, found: Found) -> Visit:
        """Read the claims of leased units. Units that cannot be read are given up or given back."""
        places = [self.geometry.place(lease_id.unit) for lease_id in found.leases]
        task = places[0].task
        with contextlib.closing(self.slices):
            self.slices.read_together(places, self.columns(task))
            begun = [self._begin(lease_id, place) for lease_id, place in zip(found.leases, places, strict=True)]
        return Visit(task=task, works=[work for work in begun if work is not None])

    def _begin(self, lease_id: LeaseId, place: Place) -> UnitWork | None:
        try:
            rows = self.slices.read(place, self.columns(place.task))
            adopted = self.saver.adopt(lease_id, place) if lease_id.generation else None
            attempts = self.saver.attempts(lease_id) if lease_id.generation >= CAREFUL_FROM else []
        except Damaged as error:
            self.events.add("unit_failed", unit=lease_id.unit, generation=lease_id.generation, reason=str(error))
            self.n_damaged += 1
            self.saver.give_up(lease_id, str(error))
            return None
        except StoreError as error:
            self._complain(error, unit=lease_id.unit)
            self.heartbeat.release(lease_id)
            self.wake.wait(STORE_RETRY_S)
            self.wake.clear()
            return None
        work = begin(lease_id, place, rows, adopted, attempts)
        self.events.add(
            "leased", unit=lease_id.unit, generation=lease_id.generation, rows=place.n_rows, adopted=work.n_adopted
        )
        if work.n_adopted:
            self.heartbeat.count(rows_adopted=work.n_adopted)
        return work

    def _complain(self, error: StoreError, **fields: int) -> None:
        """Note that the agent waits for the filesystem, and tell a person so, once for each reason."""
        self.events.add("store_error", **fields, error=str(error))
        if str(error) != self._told:
            self._told = str(error)
            self.say(f"waiting, as the filesystem refuses: {error}")
