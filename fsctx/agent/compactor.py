"""Compacts buckets that this agent helped to finish, behind the device."""

from dataclasses import dataclass

from fsctx.agent.events import EventLog
from fsctx.errors import Damaged, StoreError
from fsctx.protocol import compaction
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.manifest import Manifest
from fsctx.store import Store


@dataclass(slots=True, kw_only=True)
class Compactor:
    """Looks at a bucket when its agent moves on from it.

    Whoever publishes a bucket's last unit looks at it afterwards and finds it finished, so no bucket is
    forgotten unless that agent is killed in between: then it stays as it is, which readers know too.
    """

    store: Store
    manifest: Manifest
    labels: compaction.Labels
    events: EventLog
    _bucket: int | None = None

    def published(self, unit: int) -> None:
        """Note that a unit was published; compact the bucket before, if the agent moved on."""
        previous, self._bucket = self._bucket, bucket_of(unit)
        if previous is not None and previous != self._bucket:
            self._compact(previous)

    def finish(self) -> None:
        """Compact the last bucket."""
        if self._bucket is not None:
            self._compact(self._bucket)

    def _compact(self, bucket: int) -> None:
        """Compact a bucket if it is finished. What goes wrong is left to another agent, or to nobody."""
        if not self.manifest.compacts:
            return
        try:
            if compaction.compact(self.store, self.manifest, self.labels, bucket):
                self.events.add("compacted", bucket=bucket)
        except (StoreError, Damaged) as error:
            self.events.add("not_compacted", bucket=bucket, error=str(error))
