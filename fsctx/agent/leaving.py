"""Why and when an agent leaves: signals, orders, the end of its walltime."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fsctx.agent.threads import Threads
from fsctx.protocol.orders import Orders

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
"""Each tells an agent to leave. Grid Engine warns with SIGUSR1 (suspension, soft limit) and SIGUSR2 (end), Slurm with
what `--signal` names."""


class Interrupted(BaseException):
    """Raised in the main thread by a signal while nothing is computed that could be saved."""


class Leaving:
    """Collects reasons to leave. `now` means: save what is finished and go; `soon`: begin nothing new.

    `deadline_s` is the monotonic second at which the walltime ends; `margin_s` before it, `now` is set. So it is
    as soon as `is_orphan` says that the process which started the agent is gone.
    """

    def __init__(
        self,
        *,
        baseline: int,
        deadline_s: float | None,
        margin_s: float,
        clock: Callable[[], float],
        threads: Threads,
        is_orphan: Callable[[], bool] = lambda: False,
    ) -> None:
        self._baseline = baseline
        self._deadline_s = deadline_s
        self._margin_s = margin_s
        self._clock = clock
        self._is_orphan = is_orphan
        self._now: str | None = None
        self._soon: str | None = None
        self._now_s: float | None = None
        self._is_interruptible = False
        self.changed = threads.event()
        """Set with the first reason, for good."""
        self.wake = threads.event()
        """Ends the wait for work: set with every reason, and when the device has nothing to do."""

    @property
    def now(self) -> str | None:
        """Why to save and go at once; None while there is no reason."""
        if self._now is None and self.left_s is not None and self.left_s <= 0:
            self.leave_now("the walltime is over")
        if self._now is None and self._is_orphan():
            self.leave_now("the process that started it is gone")
        return self._now

    @property
    def soon(self) -> str | None:
        """Why to begin nothing new; None while there is no reason."""
        return self.now or self._soon

    @property
    def since_s(self) -> float:
        """Seconds since this agent was told to save and go; 0 if it was not."""
        return 0.0 if self._now_s is None else self._clock() - self._now_s

    @property
    def left_s(self) -> float | None:
        """Seconds until this agent has to save and go; None if no walltime was given."""
        return None if self._deadline_s is None else self._deadline_s - self._margin_s - self._clock()

    def leave_now(self, why: str) -> None:
        """Note a reason to save and go."""
        if self._now is None:
            self._now, self._now_s = why, self._clock()
        self._tell()

    def leave_soon(self, why: str) -> None:
        """Note a reason to begin nothing new."""
        self._soon = self._soon or why
        self._tell()

    def hear(self, orders: Orders) -> None:
        """Obey orders that are newer than this agent's submission."""
        if orders.stop > self._baseline:
            self.leave_now("the run was told to stop")
        if orders.drain > self._baseline:
            self.leave_soon("the run was told to drain")

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle the `SIGNALS`."""
        self.leave_now(f"{signal.Signals(number).name} was received")
        if self._is_interruptible:
            raise Interrupted

    def _tell(self) -> None:
        self.changed.set()
        self.wake.set()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal break off what the main thread does in this block (loading a model)."""
        self._is_interruptible = True
        try:
            if self.now:
                raise Interrupted
            yield
        finally:
            self._is_interruptible = False
