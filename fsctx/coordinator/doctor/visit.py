"""The whole of `fsctx doctor`: examine, wait for a second host if asked, conclude, leave the facts."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fsctx import __version__
from fsctx.coordinator.doctor.examine import NAMES, conclude, examine, scratch
from fsctx.coordinator.doctor.findings import Report, outweighs, to_facts
from fsctx.coordinator.doctor.joining import Watchman, wait_for_peer
from fsctx.protocol.facts import Facts, read_facts, write_facts
from fsctx.store import PosixStore
from fsctx.store.mounts import mount_of, mounts
from fsctx.store.probing import ProbeSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What a doctor's visit came to."""

    report: Report
    was_met: bool
    """Whether a second doctor came, of whatever host."""
    kept: Facts | None = None
    """Facts of two hosts that were not replaced, since one host cannot refute them."""


def visit(
    root: Path,
    *,
    wait_s: float,
    progress: Callable[[str], None],
    system: ProbeSystem | None = None,
    n_names: int = NAMES,
) -> Visit:
    """Look at a folder's filesystem and leave the facts there; nothing else is left.

    Raises:
        InputError: no such folder, or no right to write there.
        NoSpace: disk or quota is full.
        NotComplete: a second host came and fell silent.
    """
    system = system or ProbeSystem()
    meeting = None
    with scratch(root, system) as folder:
        here = examine(system, folder, progress=progress, n_names=n_names)
        if wait_s:
            progress(f"waiting up to {wait_s:g} s for a second host: run `fsctx doctor {root} --peer` there")
            meeting = wait_for_peer(system, folder, wait_s=wait_s, progress=progress, time=Watchman())
    report = conclude(root, mount_of(root, mounts()), here, meeting)
    return Visit(report=report, was_met=meeting is not None, kept=_leave_facts(PosixStore(root), report))


def _leave_facts(store: PosixStore, report: Report) -> Facts | None:
    """Write the facts, unless those that stand outweigh them: these are returned then."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    facts, standing = to_facts(report, date=date, version=__version__), read_facts(store)
    if standing is not None and outweighs(standing, facts):
        return standing
    write_facts(store, facts)
    return None
