"""Marks published verdicts by the gold labels of their claims."""

import numpy as np

from fsctx.agent.judging import Marks
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.slices import Slices
from fsctx.errors import StoreError
from fsctx.protocol.geometry import Place
from fsctx.protocol.published import results_of


class Marker:
    """Reads each slice's gold labels once, however many tasks are marked by them."""

    def __init__(self, run: RunFiles, slices: Slices) -> None:
        self._run = run
        self._slices = slices
        self._results = results_of(run.store, run.manifest)
        self._labels: dict[int, list[str | None]] = {}

    def mark(self, unit: int) -> Marks:
        """Return the marks of a unit that is listed as done. A row without a verdict is wrong.

        Raises:
            StoreError: its result cannot be seen from this host yet.
            Damaged: it is not what an agent publishes, or the claims are not what plan wrote.
        """
        manifest = self._run.manifest
        place = manifest.geometry.place(unit)
        verdicts = self._results.read(unit, self._run.labels(place.task))
        if verdicts is None:  # a client may remember for a while that a name was absent
            raise StoreError(f"unit {unit} is listed as done, but this host does not see its result yet")
        meaning = manifest.gold.get(manifest.tasks[place.task].template, {})
        meant = [meaning.get(label or "") for label in self._gold(place)]
        known = [i for i, label in enumerate(meant) if label is not None]
        said = verdicts["verdict"].to_pylist()
        return Marks(
            rows=np.array(known, np.int64) + place.first_row,
            is_right=np.array([said[i] == meant[i] for i in known], np.bool_),
        )

    def _gold(self, place: Place) -> list[str | None]:
        if place.slice not in self._labels:
            self._labels[place.slice] = self._slices.labels(place)
        return self._labels[place.slice]
