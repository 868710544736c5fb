"""What tests run on a client of a network filesystem; each command prints JSON.

onhost.py make RUN N_ROWS UNIT_ROWS TTL_S FORM    make a run
onhost.py witness RUN                         print what stands there, again and again, until standard input ends
onhost.py look RUN                            the same, once, and who holds or held which lease
"""

import contextlib
import dataclasses
import hashlib
import json
import select
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.errors import Missing
from fsctx.protocol import agents, buckets, compaction, leases, names, results
from fsctx.protocol.compaction import CompactedBuckets
from fsctx.protocol.geometry import Geometry
from fsctx.store import PosixStore

LOOK_EVERY_S = 0.3


def make(run: str, n_rows: str, unit_rows: str, ttl_s: str, form: str) -> None:
    """Make a run of which an agent holds a second's work; `form` is `compacting` or `plain`."""
    from fabricate import fabricate  # slow on a small guest

    from fsctx.protocol import codec

    made = fabricate(Path(run), n_rows=int(n_rows), unit_rows=int(unit_rows))
    manifest = dataclasses.replace(made.manifest, ttl_s=float(ttl_s), hold_s=1.0, compacts=form == "compacting")
    made.store.replace(names.MANIFEST, codec.encode_pretty(manifest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Reads a run, whether its buckets are compacted or not."""

    run: RunFiles
    merged: CompactedBuckets

    def look(self) -> dict[str, Any]:
        """Return the hash of each unit's published rows, and what the agents say."""
        store = self.run.store
        return {
            "published": self._published(),
            "links": self._links(),
            "compacted": sorted(buckets.compacted(store)),
            "agents": {name: _agent(store, name) for name in agents.list_agents(store)},
        }

    def owners(self) -> dict[str, str | None]:
        """Return who owns each lease that was ever taken and not compacted away."""
        store = self.run.store
        listing = store.list(names.bucket_folder(names.LEASES, 0))
        found = [lease_id for name in listing if (lease_id := names.parse_lease(name)) is not None]
        return {str(lease_id): leases.owner_of(store, lease_id) for lease_id in sorted(found)}

    def _published(self) -> dict[str, str]:
        """Look again where the bucket is compacted at this moment."""
        while True:
            links = self._links()
            units = links or [u for b in buckets.compacted(self.run.store) for u in self._geometry.units_of(b)]
            with contextlib.suppress(Missing):
                return {str(unit): self._fingerprint(unit, is_merged=not links) for unit in units}

    def _fingerprint(self, unit: int, *, is_merged: bool) -> str:
        labels = self.run.labels(0)
        if is_merged:
            table = self.merged.read(unit, labels)
        else:
            winner = results.winning(self.run.store, unit)
            if winner is None:
                raise Missing(f"unit {unit} was listed and is not published")
            table = compaction.read_result(self.run.store, self.run.manifest, labels, winner)
        return hashlib.sha256(json.dumps(table.to_pylist()).encode()).hexdigest()

    def _links(self) -> list[int]:
        listing = self.run.store.list(names.bucket_folder(names.RESULTS, 0))
        return sorted(unit for name in listing if (unit := names.parse_published(name)) is not None)

    @property
    def _geometry(self) -> Geometry:
        return self.run.manifest.geometry


def observer(run: str) -> Observer:
    """Return what reads a run."""
    files = read_run(PosixStore(Path(run)))
    return Observer(run=files, merged=CompactedBuckets(files.store, files.manifest))


def _agent(store: PosixStore, name: str) -> dict[str, Any]:
    """Look up what is listed only: a client that looked too early may remember for a minute that nothing was there."""
    folder = f"{names.AGENTS}/{name}"
    if not {names.agent_record(name), names.session(name)} <= {f"{folder}/{file}" for file in store.list(folder)}:
        return {}
    record, session = agents.read_agent(store, name), agents.read_session(store, name)
    said = {} if session is None else {"state": session.state, "progress": session.progress, **_ledger(session)}
    return {} if record is None else {"host": record.process.host, "pid": record.process.pid, **said}


def _ledger(session: agents.Session) -> dict[str, Any]:
    ledger = session.ledger
    return {"units_done": ledger.units_done, "rows_lost": ledger.rows_lost, "loads": ledger.loads}


def witness(run: str) -> None:
    """Look until standard input ends."""
    eyes = observer(run)
    while not select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
        tell(eyes.look())


def tell(document: Any) -> None:
    """Print one line."""
    print(json.dumps(document), flush=True)  # noqa: T201


def main(command: str, run: str, *arguments: str) -> None:
    """Run a command."""
    match command:
        case "make":
            make(run, *arguments)
        case "witness":
            witness(run)
        case "look":
            eyes = observer(run)
            tell({**eyes.look(), "owners": eyes.owners()})


if __name__ == "__main__":
    main(*sys.argv[1:])
