"""Results: a file per lease, and one symlink per unit that says which file counts.

The file is whole and durable before the symlink is tried. The first symlink wins and never changes.
"""

from fsctx.errors import Damaged
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store


def publish(store: Store, lease_id: LeaseId, content: bytes) -> LeaseId:
    """Write the verdicts of a unit and publish them, unless others are published already.

    Returns the lease whose verdicts count. Safe to repeat with the same content. Only the
    holder of `lease_id` may call it.
    """
    bucket = bucket_of(lease_id.unit)
    winner = winning(store, lease_id.unit)
    if winner is None:
        store.replace(names.result(bucket, lease_id), content)
        target = store.publish(names.published(bucket, lease_id.unit), names.result_file(lease_id))
        winner = _parse(target, lease_id.unit)
    return winner


def winning(store: Store, unit: int) -> LeaseId | None:
    """Return the lease whose verdicts are the unit's result; None if none is published.

    Raises:
        Damaged: the symlink stands for something that no agent publishes.
    """
    target = store.target(names.published(bucket_of(unit), unit))
    return None if target is None else _parse(target, unit)


def _parse(target: str, unit: int) -> LeaseId:
    lease_id = names.parse_result(target)
    if lease_id is None or lease_id.unit != unit:
        name = names.published(bucket_of(unit), unit)
        raise Damaged(f"{name} points to {target!r}, which is no result of unit {unit}: remove that symlink")
    return lease_id
