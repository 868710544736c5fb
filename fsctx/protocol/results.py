"""Results: a file per lease, and one symlink per unit that says which file counts.

The file is whole and durable before the symlink is tried. The first symlink wins and never changes.
"""

from fsctx.errors import Damaged
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store


def write(store: Store, lease_id: LeaseId, content: bytes) -> None:
    """Write the verdicts computed under a lease, without publishing them. Only its holder may."""
    store.replace(names.result(bucket_of(lease_id.unit), lease_id), content)


def publish(store: Store, lease_id: LeaseId) -> LeaseId:
    """Make the written verdicts the unit's result, unless another's are; return the lease whose verdicts count.

    Atomic, final, safe to repeat: the file MUST NOT be written again after this was tried.
    """
    name = names.published(bucket_of(lease_id.unit), lease_id.unit)
    return _parse(store.publish(name, names.result_file(lease_id)), lease_id.unit)


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
