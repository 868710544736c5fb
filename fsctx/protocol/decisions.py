"""Decisions of a sweep: a file per agent that made one, and one published name per rung that says which counts.

As with results, the file is whole before its publication is tried, and the first publication counts for ever.
"""

from fsctx.errors import Damaged, Missing
from fsctx.protocol import codec, names
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.sweep import Decision, Extent, extent_of
from fsctx.store import Store


def publish(store: Store, decision: Decision) -> Decision:
    """Make a decision the rung's, unless another is; return the one that counts.

    Atomic, final, safe to repeat with the same decision.
    """
    file = names.decision_file(decision.rung, decision.agent)
    name = f"{names.SWEEP}/{file}"
    store.replace(name, codec.encode(decision))
    winner = store.publish(names.decision(decision.rung), file)
    if winner == file:
        return decision
    store.remove(name)
    return _read(store, decision.rung, winner)


def read_decisions(store: Store, manifest: Manifest) -> tuple[Decision, ...]:
    """Read the decisions made so far, those of the first rungs, after one listing; none where a run has no sweep.

    Raises:
        Damaged: a published decision is not what an agent writes.
    """
    if manifest.sweep is None:
        return ()
    published = set(store.list(names.SWEEP))
    found: list[Decision] = []
    for rung in range(len(manifest.sweep.ends) - 1):
        if names.decision(rung).rpartition("/")[2] not in published:
            break
        target = store.target(names.decision(rung))
        if target is None:
            break
        found.append(_read(store, rung, target))
    return tuple(found)


def read_extent(store: Store, manifest: Manifest) -> Extent:
    """Return which of a run's units are open now."""
    return extent_of(manifest.geometry, manifest.sweep, read_decisions(store, manifest))


def _read(store: Store, rung: int, file: str) -> Decision:
    where = f"{store.root}/{names.SWEEP}/{file}"
    if not names.is_decision_file(file, rung):
        raise Damaged(f"{store.root}/{names.decision(rung)} points to {file!r}, which is no decision: restore it")
    try:
        decision = codec.decode(store.read(f"{names.SWEEP}/{file}"), Decision, where=where)
    except Missing:
        raise Damaged(f"{where} is published but not there: restore it, or plan the run again") from None
    if decision.rung != rung:
        raise Damaged(f"{where} is of rung {decision.rung}, not of {rung}: restore it, or plan the run again")
    return decision
