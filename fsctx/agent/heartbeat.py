"""An agent's heartbeat: its session, rewritten in place at every beat, and the orders it hears."""

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from fsctx.agent.events import EventLog
from fsctx.agent.threads import Threads
from fsctx.errors import StoreError
from fsctx.protocol import agents, names, orders
from fsctx.protocol.agents import AgentState, Ledger, Session
from fsctx.protocol.names import LeaseId, SlotId
from fsctx.protocol.orders import Orders
from fsctx.store import Store
from fsctx.store.counting import Meter


class Heartbeat:
    """Owns the session file. Thread-safe.

    A beat that the filesystem refuses is not repeated before the next one is due: others then see
    this agent silent, which costs work at most.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        events: EventLog,
        *,
        beat_s: float,
        threads: Threads,
        meter: Meter | None = None,
    ) -> None:
        self._store = store
        self._session = session
        self._sums: Counter[str] = Counter()
        """The ledger: a record of it is made for each beat, not for each count."""
        self._progress = session.progress
        self.events = events
        self._beat_s = beat_s
        self._threads = threads
        self._meter = meter or Meter()
        self._lock = threading.RLock()
        """Guards the session in memory; never held during a call of the filesystem, which may hang."""
        self._pen = threads.room(1)
        """Held by whoever writes the file."""
        self._end = threads.event()
        self._on_orders: Callable[[Orders], None] = lambda _: None

    def start(self, on_orders: Callable[[Orders], None]) -> None:
        """Begin to beat; `on_orders` is told the standing orders at every beat."""
        self._on_orders = on_orders
        self._threads.spawn("heartbeat", self._run)

    def beat(self) -> None:
        """Rewrite the session now.

        Raises:
            StoreError: the filesystem refused.
        """
        self._pen.acquire()
        try:
            with self._lock:
                self._session = self._next()
                content = agents.encode_session(self._session)
            self._store.rewrite(names.session(self.agent), content)
        finally:
            self._pen.release()

    def _next(self) -> Session:
        """Return the session of the next beat."""
        fs_calls, fs_calls_per_s = self._meter.read()
        return dataclasses.replace(
            self._session,
            counter=self._session.counter + 1,
            progress=self._progress,
            fs_calls_per_s=round(fs_calls_per_s, 3),
            ledger=dataclasses.replace(self.ledger, fs_calls=fs_calls),
        )

    def say(self, *, at_once: bool = False, **changes: Any) -> None:
        """Change what the session says, from the next beat on, or at once."""
        with self._lock:
            self._session = dataclasses.replace(self._session, **changes)
        if at_once:
            self._try(self.beat)

    def count(self, **amounts: float) -> None:
        """Add to the ledger; computed tokens and finished units are progress."""
        with self._lock:
            self._sums.update(amounts)
            self._progress += bool(amounts.keys() & {"tokens", "units_done"})

    def release(self, lease_id: LeaseId | SlotId) -> None:
        """Declare a lease given back, at once."""
        if str(lease_id) in self._session.released:
            return
        with self._lock:
            released = (*self._session.released, str(lease_id))[-agents.MAX_RELEASED :]
        self.say(at_once=True, released=released)

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._session.agent

    @property
    def session(self) -> Session:
        """What the session says now."""
        return self._session

    @property
    def ledger(self) -> Ledger:
        """The sums so far."""
        with self._lock:
            return Ledger(**self._sums)

    def stop(self, why: str) -> None:
        """Say that the agent left, which releases all its leases, and end."""
        self._end.set()
        self.say(at_once=True, state=AgentState.LEFT, why=why[:300], unit=None, context=None, rows_per_s=0.0)
        self._try(self.events.flush)

    def _run(self) -> None:
        while not self._end.wait(self._beat_s):
            self._try(self.beat)
            self._try(self.events.flush)
            self._try(lambda: self._on_orders(orders.read_orders(self._store)))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except StoreError as error:
            self.events.add("store_error", error=str(error))
