"""What is done behind the device: publishing and saving, on a thread of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import tenacity

from fsctx.agent.compactor import Compactor
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.saver import Saver
from fsctx.agent.threads import Room
from fsctx.agent.unitwork import UnitWork
from fsctx.errors import Missing, StoreError

MAX_WAITING = 4
"""So often may units be handed over that wait to be written, a visit's small ones at once; then the device waits too,
so memory stays bounded."""

_WAIT = tenacity.wait_exponential(multiplier=0.2, max=10.0) + tenacity.wait_random(0.0, 1.0)
"""Between two tries."""


@dataclass(slots=True, kw_only=True)
class Behind:
    """Writes in the order given.

    What the filesystem refuses is tried again, until the agent was told to go `grace_s` ago.
    """

    saver: Saver
    heartbeat: Heartbeat
    events: EventLog
    leaving: Leaving
    clock: Callable[[], float]
    grace_s: float
    say: Callable[[str], None]
    worker: Executor
    room: Room
    """Has `MAX_WAITING` places."""
    sleep: Callable[[float], None]
    compactor: Compactor
    _futures: list[Future[None]] = field(default_factory=list)
    _retrying: tenacity.Retrying = field(init=False)
    """Makes a call for a unit's work, its first argument, again and again; only the thread uses it."""

    def __post_init__(self) -> None:
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: isinstance(e, StoreError) and not isinstance(e, Missing)),
            wait=_WAIT,
            stop=lambda _: self.leaving.since_s >= self.grace_s,
            before_sleep=self._complain,
            sleep=self._sleep,
            reraise=True,
        )

    def publish(self, works: Sequence[UnitWork]) -> None:
        """Publish complete units, later. Handed over together they cost one change of threads, not one each.

        Their files are made here: so one thread computes while the other one waits for the disk.
        """
        self._submit(self._publish_all, [(work, self.saver.encode(work)) for work in works])

    def save(self, work: UnitWork) -> None:
        """Save the rows of a unit that are done, later. `work` must not change any more (see `UnitWork.snapshot`)."""
        self._submit(self._save, work)

    def attempt(self, work: UnitWork, rows: tuple[int, ...]) -> None:
        """Note which rows are tried now, after all that was handed over before; return when it is written."""
        self._submit(self._retrying, self.saver.attempt, work, rows)
        self.wait()

    def check(self) -> None:
        """Raise what went wrong on the thread, if anything did."""
        done = [future for future in self._futures if future.done()]
        self._futures = [future for future in self._futures if not future.done()]
        for future in done:
            future.result()

    def wait(self) -> None:
        """Wait until everything that was handed over is written."""
        for future in list(self._futures):
            future.exception()
        self.check()

    def rest(self) -> None:
        """Compact the last bucket, later: there is nothing to do for now."""
        if not self.leaving.soon:
            self.worker.submit(self.compactor.rest)

    def finish(self) -> None:
        """Wait until everything is written, or it is too late to; then raise what went wrong."""
        if not self.leaving.now:
            self.worker.submit(self.compactor.finish)
        self.worker.shutdown(wait=True)
        self.check()

    def _submit(self, call: Callable[..., None], *args: Any) -> None:
        self.check()
        self.room.acquire()
        self._futures.append(self.worker.submit(self._run, call, *args))

    def _run(self, call: Callable[..., None], *args: Any) -> None:
        began_s = self.clock()
        try:
            call(*args)
        finally:
            self.room.release()
            self.heartbeat.count(write_s=self.clock() - began_s)

    def _publish_all(self, units: Sequence[tuple[UnitWork, bytes]]) -> None:
        """Publish units; what goes wrong with one does not keep the others."""
        errors = [error for work, content in units if (error := self._failure(work, content)) is not None]
        if errors:
            raise errors[0]

    def _failure(self, work: UnitWork, content: bytes) -> Exception | None:
        try:
            self._publish(work, content)
        except Exception as error:  # noqa: BLE001 - raised when the others were tried
            return error
        return None

    def _publish(self, work: UnitWork, content: bytes) -> None:
        is_mine = self._write_and_publish(work, content)
        n_own = len(work.verdicts)
        event = "published" if is_mine else "lost"
        self.events.add(event, unit=work.lease_id.unit, generation=work.lease_id.generation, rows=n_own)
        if is_mine:
            self.heartbeat.count(units_done=1, rows_done=n_own)
        else:
            self.heartbeat.count(rows_lost=n_own)
        self.compactor.published(work.lease_id.unit)

    def _write_and_publish(self, work: UnitWork, content: bytes) -> bool:
        try:
            self._retrying(self.saver.write, work, content)
            return self._retrying(self.saver.publish, work)
        except Missing:
            if self.saver.is_compacted(work):
                return False
            raise

    def _save(self, work: UnitWork) -> None:
        try:
            self._retrying(self.saver.save, work)
        except Missing:
            if self.saver.is_compacted(work):
                return
            raise
        self.events.add("saved", unit=work.lease_id.unit, generation=work.lease_id.generation, rows=len(work.verdicts))

    def _complain(self, state: tenacity.RetryCallState) -> None:
        work: UnitWork = state.args[0]
        error = state.outcome.exception() if state.outcome else None
        self.events.add("store_error", unit=work.lease_id.unit, attempt=state.attempt_number, error=str(error))
        if state.attempt_number == 1:
            self.say(f"unit {work.lease_id.unit} cannot be written ({error}); trying again until it can")

    def _sleep(self, seconds: float) -> None:
        """Wait before the next try; being told to leave makes the waits short, not the tries few."""
        if self.leaving.now:
            self.sleep(min(seconds, 0.5))
        else:
            self.leaving.changed.wait(seconds)
