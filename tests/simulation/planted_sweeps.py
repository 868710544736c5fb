"""Planted faults about sweeps that stop early. `mutants` tells what each stands for."""

from typing import Any

from fsctx.agent.judging import Marks, merged
from fsctx.agent.marking import Marker
from fsctx.agent.referee import Referee
from fsctx.agent.rota import Rota
from fsctx.agent.search import Search
from fsctx.errors import StoreError
from fsctx.protocol import decisions, names
from fsctx.protocol.sweep import Decision
from fsctx.store import Store
from simulation.planted import Planted, Plants


def _at_once(_original: Any) -> Any:
    def turn(self: Referee, rota: Rota, now_s: float) -> bool:
        return self.learn() or self._decide()

    return turn


def _over_when_all_are_leased(_original: Any) -> Any:
    def look(self: Referee) -> frozenset[int]:
        return frozenset()

    return look


def _without_the_rest(original: Any) -> Any:
    def mark(self: Marker, unit: int) -> Marks:
        try:
            found: Marks = original(self, unit)
        except StoreError:
            return merged(())
        return found

    return mark


def _open_to_all(_original: Any) -> Any:
    def is_open(self: Search, unit: int) -> bool:
        return self._level_of(unit) is not None

    return is_open


def _latest_counts(original: Any) -> Any:
    def publish(store: Store, decision: Decision) -> Decision:
        store.remove(names.decision(decision.rung))
        published: Decision = original(store, decision)
        return published

    return publish


without_the_last_units: Plants = (
    Planted(Referee, "turn", _at_once),
    Planted(Referee, "_look", _over_when_all_are_leased),
    Planted(Marker, "mark", _without_the_rest),
)
beyond_the_open_rung: Plants = (Planted(Search, "_is_open", _open_to_all),)
latest_decision_counts: Plants = (Planted(decisions, "publish", _latest_counts),)
