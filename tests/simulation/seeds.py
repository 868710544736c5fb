"""Living through many histories, and making a failing one small."""

import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from multiprocessing import get_context
from typing import Any

from simulation.history import run
from simulation.plan import Plan, draw, smaller

AT_ONCE = 100
"""Seeds that a worker process is given at a time."""

MAX_SHRINKS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that went wrong."""

    plan: Plan
    what: str
    """The error's kind and message, in one line."""

    @property
    def kind(self) -> str:
        """What a smaller history must have in common: the law, or the kind of error."""
        return ":".join(self.what.split(":")[:2])

    @property
    def command(self) -> str:
        """What replays it."""
        changes = "".join(f" --with {name}={value}" for name, value in differences(draw(self.plan.seed), self.plan))
        return f"cd tests && python -m simulation --seed {self.plan.seed}{changes} --trace"


def failure_of(plan: Plan) -> Failure | None:
    """Live through a history; return what went wrong, if anything did."""
    try:
        run(plan)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the code raises is a finding
        return Failure(plan, f"{type(error).__name__}: {error}".splitlines()[0])
    return None


def failures_of(
    seeds: Iterable[int], *, jobs: int, minutes: float | None = None
) -> Iterator[tuple[int, Failure | None]]:
    """Live through the histories of seeds, in several processes; yield how many are done, and each failure."""
    end_s = None if minutes is None else time.monotonic() + 60 * minutes
    rest, n_done = iter(seeds), 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as pool:
        running: set[Future[list[Failure]]] = set()
        sizes: dict[Future[list[Failure]], int] = {}
        while True:
            while len(running) < 2 * jobs and (end_s is None or time.monotonic() < end_s):
                chunk = list(islice(rest, AT_ONCE))
                if not chunk:
                    break
                future = pool.submit(_failures, chunk)
                running.add(future)
                sizes[future] = len(chunk)
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                n_done += sizes.pop(future)
                yield n_done, None
                for failure in future.result():
                    yield n_done, failure


def _begin() -> None:
    """Give way to what else is tested, and look for garbage seldom: a tenth of the time went there."""
    os.nice(5)
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _failures(seeds: Sequence[int]) -> list[Failure]:
    return [failure for seed in seeds if (failure := failure_of(draw(seed))) is not None]


def shrunk(failure: Failure) -> Failure:
    """Return a smaller history that breaks the same law, if there is one: one thing less at a time."""
    tries = 0
    while True:
        for plan in smaller(failure.plan):
            tries += 1
            found = failure_of(plan)
            if found is not None and found.kind == failure.kind:
                failure = found
                break
            if tries >= MAX_SHRINKS:
                return failure
        else:
            return failure


def differences(drawn: Any, other: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields in which a plan differs from another one, by their dotted names."""
    for field in fields(drawn):
        before, after = getattr(drawn, field.name), getattr(other, field.name)
        if is_dataclass(before):
            yield from differences(before, after, f"{prefix}{field.name}.")
        elif before != after:
            yield f"{prefix}{field.name}", after


def changed(plan: Any, name: str, text: str) -> Any:
    """Return a plan with a field set, by its dotted name, to a value as `differences` names it."""
    first, _, rest = name.partition(".")
    value = getattr(plan, first)
    if rest:
        return replace(plan, **{first: changed(value, rest, text)})
    return replace(plan, **{first: text == "True" if isinstance(value, bool) else type(value)(text)})
