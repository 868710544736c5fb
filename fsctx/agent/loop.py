"""The agent's main loop: the device works, everything else is done ahead of it or behind it."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from fsctx.agent.ahead import Ahead
from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.behind import Behind
from fsctx.agent.decide import Leave
from fsctx.agent.engines.base import Bound
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Interrupted
from fsctx.agent.limits import Limits
from fsctx.agent.residency import Changed, ContextMode, Residency
from fsctx.agent.visit import Visit
from fsctx.errors import Damaged, FsctxError, Misconfigured, Unfit
from fsctx.protocol.agents import AgentState
from fsctx.protocol.verdicts import Verdict


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
    refusal: FsctxError | None = None
    """Why a task was refused, if one was."""
    _budget: Budget | None = None
    _saved_s: float = 0.0

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
        if self.refusal is not None and not self.heartbeat.ledger.units_done:
            raise self.refusal
        return reason

    def _warm_up(self) -> None:
        """Load the context of the first free unit before anything is leased: a node that cannot wastes no lease."""
        while self.residency.mode == ContextMode.FULL and not self.limits.reason():
            task = self.ahead.first_task()
            if task is None or self._make_resident(task) is not None:
                return

    def _work(self) -> str:
        upcoming = self._prepare()
        while True:
            step = self._await(upcoming)
            if isinstance(step, Leave):
                return step.reason
            self.limits.n_taken += len(step.works)
            bound = self._make_resident(step.task)
            upcoming = self._prepare()
            if bound is None:
                self._give_back(step)
            else:
                self._compute(step, bound)
            if self.limits.leaving.now:
                return self.limits.leaving.now

    def _prepare(self) -> Future[Visit | Leave]:
        return self.worker.submit(self.ahead.next_visit, self.limits.wanted())

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
        self.refusal = error
        self.say(f"not doing {self.residency.tasks[task].model} × {self.residency.tasks[task].template}: {error}")
        self.events.add("refused", task=task, error=str(error))

    def _note(self, task: int, changed: Changed) -> None:
        if changed.fetched is not None and self.residency.model is not None:
            model, fetched = self.residency.model, changed.fetched
            self._budget = Budget(model.batch_tokens)
            self.heartbeat.count(loads=1, fetch_s=fetched.seconds, load_s=changed.load_s)
            self.heartbeat.say(context=self.residency.context, source=fetched.source, device=model.device)
            self.events.add("fetched", source=fetched.source, seconds=round(fetched.seconds, 3), bytes=fetched.bytes)
            self.events.add(
                "loaded",
                seconds=round(changed.load_s, 3),
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
        began_s = self._saved_s = self.clock()
        encoded, n_rows = visit.encode(bound), 0
        assert self._budget is not None
        self._hand_over(visit)
        for verdicts in infer_all(
            bound, encoded, budget=self._budget, should_stop=lambda: bool(self.limits.leaving.now)
        ):
            visit.take_in(verdicts)
            n_rows += len(verdicts)
            self._account(verdicts)
            self._hand_over(visit)
        seconds = self.clock() - began_s
        self.heartbeat.count(infer_s=seconds)
        self.events.add("inferred", rows=n_rows, seconds=round(seconds, 3))
        self.limits.pace = self.limits.pace.after(n_rows, seconds)
        self.heartbeat.say(rows_per_s=round(self.limits.pace.rows_per_s, 3))
        self._save(visit)
        self.residency.after_visit()

    def _hand_over(self, visit: Visit) -> None:
        """Publish what is complete; while a unit lasts long, save what is finished of it."""
        for work in visit.pop_complete():
            self.behind.publish(work)
        if self.clock() - self._saved_s >= self.save_s:
            self._save(visit)

    def _save(self, visit: Visit) -> None:
        self._saved_s = self.clock()
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
