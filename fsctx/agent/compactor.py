"""Compacts buckets that this agent helped to finish, behind the device."""

from dataclasses import dataclass
from random import Random

from fsctx.agent.events import EventLog
from fsctx.errors import Damaged, StoreError
from fsctx.protocol import compaction
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.manifest import Manifest
from fsctx.store import Store

SWEPT = 4
"""So many buckets are looked at when an agent leaves."""


@dataclass(slots=True, kw_only=True)
class Compactor:
    """Looks at a bucket when its agent moves on from it, or rests.

    Whoever publishes a bucket's last unit looks at it afterwards and finds it finished, so no bucket is
    forgotten unless an agent is killed in between: agents that leave look for such ones, a few each.
    """

    store: Store
    manifest: Manifest
    labels: compaction.Labels
    events: EventLog
    agent: str
    chance: Random
    _bucket: int | None = None

    def published(self, unit: int) -> None:
        """Note that a unit was published; compact the bucket before, if the agent moved on."""
        previous, self._bucket = self._bucket, bucket_of(unit)
        if previous is not None and previous != self._bucket:
            self._compact(previous, claimant=self.agent)

    def rest(self) -> None:
        """Compact the bucket of the last unit: there is none to move on to for now.

        Those who wait learn by one listing what was compacted, and else look at every bucket themselves.
        """
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            self._compact(bucket, claimant=self.agent)

    def finish(self) -> None:
        """Compact the last bucket, and some that others left behind."""
        self.rest()
        if self.manifest.compacts:
            left = self._uncompacted()
            for bucket in self.chance.sample(left, min(SWEPT, len(left))):
                self._compact(bucket, claimant=None)

    def _uncompacted(self) -> list[int]:
        try:
            return compaction.uncompacted(self.store)
        except StoreError as error:
            self.events.add("store_error", error=str(error))
            return []

    def _compact(self, bucket: int, *, claimant: str | None) -> None:
        """Compact a bucket if it is finished. What goes wrong is left to another agent, or to nobody."""
        if not self.manifest.compacts:
            return
        try:
            if compaction.compact(self.store, self.manifest, self.labels, bucket, claimant=claimant):
                self.events.add("compacted", bucket=bucket)
        except (StoreError, Damaged) as error:
            self.events.add("not_compacted", bucket=bucket, error=str(error))
