"""Sweeps for tests: planned by the real plan, on claims whose labels the fake engine holds to be true."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fabricate import LABELS, Undurable
from fabricate_parts import template_source
from planning import make_plan

from fsctx.agent.engines.base import Bound, BoundTask
from fsctx.agent.engines.fake import FakeEngine, FakeOptions, gold
from fsctx.agent.events import EventLog
from fsctx.agent.referee import Referee
from fsctx.agent.rota import Rota
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.search import Search
from fsctx.agent.slices import Slices
from fsctx.protocol import leases, results
from fsctx.protocol.decisions import read_extent
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin, to_parquet, to_table
from fsctx.store import PosixStore

MINE, OTHERS = Rota(), Rota(reach=0.0)
"""A rota that names this agent for everything, and one that never does."""

Accuracies = Mapping[str, float]


def plan_sweep(folder: Path, templates: Iterable[str], *, n_rows: int, **options: object) -> RunFiles:
    """Plan a sweep over claims that differ from folder to folder."""
    claims = [f"Claim {row} of {folder.name}." for row in range(n_rows)]
    lines = (json.dumps({"claim": claim, "label": gold(claim, LABELS)}) for claim in claims)
    folder.mkdir()
    (folder / "claims.jsonl").write_text("\n".join(lines))
    files = []
    for template in templates:
        files.append(folder / f"{template}.toml")
        files[-1].write_text(template_source(template, LABELS))
    given = {"sweep": "halving", "ttl_s": 60.0, **options}
    make_plan(folder / "claims.jsonl", run=folder / "run", templates=tuple(map(str, files)), **given)
    return read_run(PosixStore(folder / "run", system=Undurable()))


def referee(
    run: RunFiles, agent: str = "host-1-a", *, search: Search | None = None, leave: str | None = None
) -> Referee:
    """Return the referee of an agent that leaves where it is told why."""
    return Referee(
        run=run,
        search=search
        or Search(run.manifest.geometry, run.manifest.tasks, Random(1), extent=read_extent(run.store, run.manifest)),
        slices=Slices(run.store, run=run.manifest.run),
        agent=agent,
        events=EventLog(run.store, agent, clock=lambda: 0.0, utc=lambda: ""),
        chance=Random(1),
        utc=lambda: "now",
        clock=lambda: 0.0,
        reason_to_leave=lambda: leave,
    )


def look_at_all(search: Search, run: RunFiles) -> None:
    """Let a search look at every bucket that it wants to."""
    from fsctx.protocol import buckets

    while (bucket := search.next_step(0.0)[1]) is not None:
        search.saw(buckets.look(run.store, run.manifest.geometry, bucket), 0.0)


@dataclass(slots=True, kw_only=True)
class Worker:
    """Publishes units as an agent with a fake engine does, at once."""

    run: RunFiles
    accuracies: Accuracies
    done: set[int] = field(default_factory=set)
    _bound: dict[int, Bound] = field(default_factory=dict)

    def finish(self, units: Iterable[int]) -> None:
        """Compute and publish units, those that are not done."""
        for unit in set(units) - self.done:
            place = self.run.manifest.geometry.place(unit)
            bound = self.bound(place.task)
            with contextlib.closing(Slices(self.run.store, run=self.run.manifest.run)) as slices:
                verdicts = bound.infer(bound.encode(slices.read(place, ())))
            origin = Origin(generation=0, agent="worker", host="host", device="fake", engine="fake")
            table = to_table(verdicts, self.run.labels(place.task), origin)
            leases.take(self.run.store, LeaseId(unit, 0), "worker")
            results.write(self.run.store, LeaseId(unit, 0), to_parquet(table, run=self.run.manifest.run, unit=unit))
            results.publish(self.run.store, LeaseId(unit, 0))
            self.done.add(unit)

    def sweep(self) -> None:
        """Work until nothing is left to do."""
        judge = referee(self.run)
        while True:
            extent = read_extent(self.run.store, self.run.manifest)
            self.finish(extent.open_units())
            if not extent.waiting:
                return
            look_at_all(judge.search, self.run)
            assert judge.turn(MINE, 0.0)

    def bound(self, task: int) -> Bound:
        """Return the engine of a task."""
        if task not in self._bound:
            planned = self.run.manifest.tasks[task]
            model = FakeEngine(FakeOptions(accuracies=tuple(self.accuracies.items()))).load(self.run.store.root)
            bound_task = BoundTask(template=self.run.templates[planned.template], method=planned.method)
            self._bound[task] = model.bind(bound_task)
        return self._bound[task]

    def accuracy(self, task: int) -> float:
        """Return a task's accuracy on all claims, as the full sweep finds it."""
        geometry, bound = self.run.manifest.geometry, self.bound(task)
        places = [geometry.place(geometry.unit_of(task=task, slice_number=n)) for n in range(geometry.n_slices)]
        with contextlib.closing(Slices(self.run.store, run=self.run.manifest.run)) as slices:
            verdicts = [v for place in places for v in bound.infer(bound.encode(slices.read(place, ())))]
            labels = [label for place in places for label in slices.labels(place)]
        return sum(v.verdict == label for v, label in zip(verdicts, labels, strict=True)) / len(labels)
