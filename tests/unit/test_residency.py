"""What is loaded and bound when: once per context and task, for as long as the model stays."""

from collections import Counter
from pathlib import Path

import pytest
from fabricate_parts import template_source

from fsctx.agent.engines.base import BoundTask
from fsctx.agent.engines.fake import FakeBound, FakeEngine, FakeModel
from fsctx.agent.residency import ContextMode, Residency
from fsctx.cache import Fetched
from fsctx.protocol.manifest import Context, Task
from fsctx.templates.load import parse_template

TASKS = [Task(context=c, model=c, template=t, method="score") for c in ("c1", "c2") for t in ("t1", "t2")]


class CountingEngine(FakeEngine):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def load(self, files: Path) -> FakeModel:
        self.counts["load"] += 1
        counts = self.counts

        class CountingModel(FakeModel):
            def bind(self, task: BoundTask) -> FakeBound:
                counts["bind"] += 1
                return super().bind(task)

            def close(self) -> None:
                counts["close"] += 1
                super().close()

        return CountingModel(self._options, self._sleep)


def residency(engine: CountingEngine, mode: ContextMode) -> Residency:
    contexts = {c: Context(digest=c, kind="fake", name=c, origin="/m", files=(), chunk_bytes=1) for c in ("c1", "c2")}
    return Residency(
        tasks=TASKS,
        contexts=contexts,
        templates={t: parse_template(template_source(t, ["yes", "no"]), where=t) for t in ("t1", "t2")},
        mode=mode,
        engine_for=lambda _: engine,
        fetch=lambda context, engine: Fetched(path=Path("/m"), source="node", seconds=0.0, bytes=0),
        clock=lambda: 0.0,
    )


def visit_all(engine: CountingEngine, mode: ContextMode, tasks: list[int]) -> Counter[str]:
    resident = residency(engine, mode)
    for task in tasks:
        resident.ensure(task, lambda _: None)
        resident.after_visit()
    return engine.counts


def test_a_task_is_bound_once_per_load_however_many_units_and_tasks_take_turns() -> None:
    counts = visit_all(CountingEngine(), ContextMode.FULL, [0, 0, 1, 0, 1, 1])
    assert counts == {"load": 1, "bind": 2}


def test_another_context_takes_the_place_of_the_one_before() -> None:
    counts = visit_all(CountingEngine(), ContextMode.FULL, [0, 1, 2, 3])
    assert counts == {"load": 2, "bind": 4, "close": 1}


@pytest.mark.parametrize("mode", [ContextMode.PARTIAL, ContextMode.AGNOSTIC])
def test_the_other_modes_load_and_bind_for_each_visit(mode: ContextMode) -> None:
    counts = visit_all(CountingEngine(), mode, [0, 0, 1])
    assert counts == {"load": 3, "bind": 3, "close": 3}


def test_a_bound_task_is_the_same_object_from_unit_to_unit() -> None:
    resident = residency(CountingEngine(), ContextMode.FULL)
    first, _ = resident.ensure(1, lambda _: None)
    resident.after_visit()
    resident.ensure(0, lambda _: None)
    assert resident.ensure(1, lambda _: None)[0] is first
    assert resident.bound(1) is first
