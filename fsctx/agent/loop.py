"""The agent's main loop: the device works, everything else is done ahead of it or behind it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from fsctx.agent.ahead import Ahead
from fsctx.agent.batching import Budget, Health, infer_all
from fsctx.agent.behind import Behind
from fsctx.agent.decide import Leave
from fsctx.agent.engines.base import Bound, Encoded
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Interrupted
from fsctx.agent.limits import Limits
from fsctx.agent.patrol import Rounds
from fsctx.agent.residency import Changed, ContextMode, Residency
from fsctx.agent.unitwork import UnitWork
from fsctx.agent.visit import Visit
from fsctx.cache import Fetched
from fsctx.errors import Damaged, FsctxError, Misconfigured, Unfit
from fsctx.protocol.agents import AgentState
from fsctx.protocol.verdicts import Verdict

MAX_RESTARTS = 3
"""So often is an engine loaded again that died; then the agent leaves, for another node."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """One agent's work, from the first lease to the last."""

    ahead: Ahead
    behind: Behind
    residency: Residency
    heartbeat: Heartbeat
    events: EventLog
    limits: Limits
    save_s: float
    clock: Callable[[], float]
    say: Callable[[str], None]
    worker: Executor
    """Runs `ahead`."""
    rounds: Rounds
    refusal: FsctxError | None = None
    """Why a task was refused, if one was."""
    _upcoming: Future[Visit | Leave] | None = None
    _budget: Budget | None = None
    _began_s: float = 0.0
    _saved_s: float = 0.0
    _health: Health = field(default_factory=Health)
    _n_restarts: int = 0

    def run(self) -> str:
        """Work until there is a reason to leave, and return it.

        Raises:
            Unfit, Misconfigured, Damaged: none of the run's tasks could be done here.
            StoreError: what was computed could not be written within the grace period.
        """
        try:
            self._warm_up()
            reason = self._work()
        except Interrupted:
            reason = self.limits.leaving.now or "interrupted"
        finally:
            self.limits.leaving.leave_soon("the agent is leaving")
            self.worker.shutdown(wait=False, cancel_futures=True)
            self._say(AgentState.LEAVING)
            self.behind.finish()
        if self.refusal is not None and self.ahead.scout.search.refuses_all:
            raise self.refusal
        return reason

    def _warm_up(self) -> None:
        """Load the context of the first free unit before anything is leased: a node that cannot wastes no lease."""
        self._refuse_impossible()
        self.ahead.scout.search.found_on_node(self.residency.on_node())
        while self.residency.mode == ContextMode.FULL and not self.limits.reason():
            task = self.ahead.first_task()
            if task is None or self._make_resident(task) is not None:
                return

    def _refuse_impossible(self) -> None:
        """Refuse what this device or engine can't do, by size and kind, before any of it is leased or fetched."""
        of_context = {task.context: number for number, task in enumerate(self.residency.tasks)}
        for context, task in of_context.items():
            try:
                self.residency.check(self.residency.contexts[context])
            except (Unfit, Misconfigured) as error:
                self._refuse(task, error)

    def _work(self) -> str:
        while True:
            step = self._await(self._prepare())
            if isinstance(step, Leave):
                return step.reason
            self.limits.n_taken += len(step.works)
            bound = self._make_resident(step.task)
            if bound is None:
                self._give_back(step)
            else:
                self._compute(step, bound)
            if self.limits.leaving.now:
                return self.limits.leaving.now

    def _prepare(self) -> Future[Visit | Leave]:
        """Begin to look for the next visit, unless that was done."""
        if self._upcoming is None:
            self._upcoming = self.worker.submit(self.ahead.next_visit, self.limits.wanted())
        return self._upcoming

    def _prepare_in_time(self, visit: Visit) -> None:
        """Look for the next visit when this one is about to end: of long units, what is held early others lack late."""
        if self.limits.pace.is_ending(visit.n_left, n_done=visit.n_done, seconds=self.clock() - self._began_s):
            self._prepare()
        self.rounds.next(self.worker)

    def _await(self, upcoming: Future[Visit | Leave]) -> Visit | Leave:
        """Return the next visit. Where it is not ready the device is idle: what others may need is written first."""
        began_s = self.clock()
        if not upcoming.done():
            self._say(AgentState.WAITING)
            self.behind.wait()
            self.limits.leaving.wake.set()
        try:
            return upcoming.result()
        finally:
            self._upcoming = None
            self.heartbeat.count(idle_s=self.clock() - began_s)

    def _make_resident(self, task: int) -> Bound | None:
        """Make a task's context resident; None where this agent cannot, which it then never tries again."""
        try:
            with self.limits.leaving.interruptible():
                bound, changed = self.residency.ensure(task, lambda step: self._say(AgentState(step)))
        except (Unfit, Misconfigured, Damaged) as error:
            self._refuse(task, error)
            return None
        self._note(task, changed)
        self.ahead.scout.search.settle(task)
        return bound

    def _refuse(self, task: int, error: FsctxError) -> None:
        """Refuse a task, or, where its context did not load, all tasks of the context."""
        context = self.residency.tasks[task].context
        is_loaded = self.residency.context == context
        same = [i for i, other in enumerate(self.residency.tasks) if other.context == context]
        self.ahead.scout.search.refuse([task] if is_loaded else same)
        if not isinstance(self.refusal, Unfit):  # where one context wants another node, the agent's end says so
            self.refusal = error
        self.say(f"not doing {self.residency.tasks[task].model} × {self.residency.tasks[task].template}: {error}")
        self.events.add("refused", task=task, error=str(error))

    def _note(self, task: int, changed: Changed) -> None:
        if changed.fetched is not None and self.residency.model is not None:
            model, fetched = self.residency.model, changed.fetched
            self._budget = Budget(model.batch_tokens)
            self.heartbeat.count(
                loads=1, fetch_s=fetched.seconds + fetched.convert_s, load_s=changed.load_s, **_by_source(fetched)
            )
            self.heartbeat.say(
                context=self.residency.context,
                source=fetched.source,
                fetched_bytes=fetched.bytes,
                ready_s=round(fetched.seconds + fetched.convert_s + changed.load_s, 3),
                device=model.device,
            )
            self.ahead.scout.search.found_on_node(self.residency.on_node())
            self.events.add("fetched", **_moved(fetched.bytes, fetched.seconds), **_whence(fetched))
            self.events.add(
                "loaded",
                context=self.residency.context,
                **_moved(fetched.size_bytes, changed.load_s),
                source=fetched.source,
                device=model.device,
                dtype=model.dtype,
                engine=self.residency.engine,
            )
        if changed.bind_s:
            self.heartbeat.count(load_s=changed.bind_s)
            self.events.add("warmed_up", task=task, seconds=round(changed.bind_s, 3))

    def _compute(self, visit: Visit, bound: Bound) -> None:
        """Compute a visit, publishing each unit as soon as it is complete."""
        self._say(AgentState.RUNNING, unit=visit.works[0].lease_id.unit)
        self._began_s = self._saved_s = self.clock()
        try:
            n_rows = self._infer_all(visit, bound)
        except Unfit as error:
            self._restart(visit, error)
            return
        seconds = self.clock() - self._began_s
        self.heartbeat.count(infer_s=seconds)
        self.events.add("inferred", rows=n_rows, seconds=round(seconds, 3))
        self.limits.pace = self.limits.pace.after(n_rows, seconds)
        self.heartbeat.say(rows_per_s=round(self.limits.pace.rows_per_s, 3))
        self._save(visit)
        self.residency.after_visit()

    def _infer_all(self, visit: Visit, bound: Bound) -> int:
        self._hand_over(visit)
        self._prepare_in_time(visit)
        n_rows = self._infer(visit, bound, visit.encode(bound))
        careful = [work for work in visit.works if work.care is not None]
        for work in careful:
            n_rows += self._infer_carefully(visit, work, bound)
        self._publish_complete(visit)
        if careful:  # written before anything else is tried: else a death over that is put down to these rows
            self.behind.wait()
        return n_rows

    def _restart(self, visit: Visit, error: Unfit) -> None:
        """Save and give back what an engine did not finish that died; load it again, if not too often."""
        self._n_restarts += 1
        self.events.add("engine_died", error=str(error), restarts=self._n_restarts)
        self._save(visit)
        self.behind.wait()
        self._give_back(visit)
        self.residency.drop()
        if self._n_restarts > MAX_RESTARTS or self._health.is_in_doubt:
            raise error
        self.say(f"the engine died ({error}); loading the model again")

    def _infer(self, visit: Visit, bound: Bound, encoded: Sequence[Encoded]) -> int:
        """Compute rows batch by batch; return how many were finished."""
        assert self._budget is not None
        n_rows = 0
        computed = infer_all(bound, encoded, budget=self._budget, should_stop=self._should_stop, health=self._health)
        for verdicts in computed:
            visit.take_in(verdicts)
            n_rows += len(verdicts)
            self._account(verdicts)
            self._hand_over(visit)
            self._prepare_in_time(visit)
        return n_rows

    def _infer_carefully(self, visit: Visit, work: UnitWork, bound: Bound) -> int:
        """Compute a unit group by group, telling beforehand which rows are tried: they may be the end of us."""
        assert work.care is not None
        rows, n_rows = {row.row: row for row in work.todo}, 0
        for group in work.care.groups:
            if not self._should_stop():
                self.behind.attempt(work, group)
                n_rows += self._infer(visit, bound, bound.encode([rows[row] for row in group]))
                self._save(visit)
        return n_rows

    def _should_stop(self) -> bool:
        return self.limits.leaving.now is not None

    def _hand_over(self, visit: Visit) -> None:
        """Publish what is complete; while a unit lasts long, save what is finished of it."""
        if not self._health.is_in_doubt:
            self._publish_complete(visit)
        if self.clock() - self._saved_s >= self.save_s:
            self._save(visit)

    def _publish_complete(self, visit: Visit) -> None:
        if complete := visit.pop_complete():
            self.behind.publish(complete)

    def _save(self, visit: Visit) -> None:
        self._saved_s = self.clock()
        if self._health.is_in_doubt:
            return  # rows that failed here may do elsewhere
        for work in visit.works:
            if work.has_news:
                self.behind.save(work.snapshot())

    def _account(self, verdicts: list[Verdict]) -> None:
        self.heartbeat.count(tokens=sum(v.input_tokens + v.output_tokens for v in verdicts))

    def _give_back(self, visit: Visit) -> None:
        for work in visit.works:
            self.heartbeat.release(work.lease_id)

    def _say(self, state: AgentState, *, unit: int | None = None) -> None:
        self.heartbeat.say(state=state, unit=unit)


def _moved(n_bytes: int, seconds: float) -> dict[str, float]:
    """Return what an event says of bytes and the time that they took."""
    rate = n_bytes / seconds / 1e6 if seconds > 0 else 0.0
    return {"bytes": n_bytes, "seconds": round(seconds, 3), "mb_per_s": round(rate, 1)}


def _by_source(fetched: Fetched) -> dict[str, int]:
    """Return the ledger's bytes."""
    found = fetched.bytes_by_source or {fetched.source: fetched.size_bytes}
    return {f"bytes_{source}": n_bytes for source, n_bytes in found.items()}


def _whence(fetched: Fetched) -> dict[str, Any]:
    found: dict[str, Any] = {"source": fetched.source, "bytes_by_source": fetched.bytes_by_source}
    if fetched.convert_s:
        found["convert_s"] = round(fetched.convert_s, 3)
    return found | ({"note": fetched.note} if fetched.note else {})
