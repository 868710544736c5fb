"""The run folder while it is planned: who plans there, what an interrupted plan left, and how to leave no trace.

    look      nothing is changed: is the folder usable, unfinished, or a whole run?
    occupied  the marker is created exclusively, debris removed; on failure everything is removed again

A marker is dead when its process is known to be dead on this host, or, of another host, when its pulse stood still
while it was watched. `check_ours` before each name that readers could see keeps a plan that was taken for dead from
adding to the folder of the one that replaced it.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fsctx.coordinator.plan.faults import disk_faults
from fsctx.coordinator.plan.pulse import beating, is_silent
from fsctx.coordinator.plan.request import Progress
from fsctx.errors import Damaged, InputError, Missing, StoreError
from fsctx.protocol import codec, names
from fsctx.protocol.processes import Process, is_dead, this_process
from fsctx.store import PosixStore, Store
from fsctx.store.base import TEMPORARY

_OWN_FOLDERS = (
    names.UNITS,
    names.CONTEXTS,
    names.TEMPLATES,
    *names.BUCKETED,
    names.AGENTS,
    names.CONTROL,
    names.LOGS,
    names.SUBMISSIONS,
)


class State(StrEnum):
    """What stands in the place of the run folder."""

    VACANT = "vacant"
    UNFINISHED = "unfinished"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """planning.json: the process that plans here."""

    process: Process
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands in the place of the run folder, and, where a plan died there, its marker."""

    state: State
    dead: bytes = b""


def look(root: Path, progress: Progress) -> Standing:
    """Tell what stands at `root`, changing nothing; a plan of another host is watched for a while.

    Raises:
        InputError: no folder, somebody else's files, or a plan that is still alive.
    """
    try:
        found = set(os.listdir(root))
    except FileNotFoundError:
        return Standing(state=State.VACANT)
    except NotADirectoryError:
        raise InputError(f"{root} is a file: choose a folder that does not exist yet for --run") from None
    except OSError as error:
        raise InputError(f"{root} cannot be listed ({error.strerror}): choose another folder for --run") from None
    if names.MANIFEST in found:
        return Standing(state=State.FINISHED)
    if names.PLANNING in found:
        return Standing(state=State.UNFINISHED, dead=_refuse_living(PosixStore(root), progress))
    if found - {names.DOCTOR}:
        raise InputError(
            f"{root} is not empty and is no run (it holds {', '.join(sorted(found)[:5])}): "
            "choose a folder that does not exist yet for --run"
        )
    return Standing(state=State.VACANT)


class Workspace:
    """A run folder that this process plans in."""

    def __init__(self, store: Store, marker: bytes) -> None:
        self.store = store
        self._marker = marker

    @property
    def root(self) -> Path:
        """The run folder."""
        return self.store.root

    def check_ours(self) -> None:
        """Check that nobody took the folder over.

        Raises:
            TakenOver: somebody did; nothing here is ours any more.
        """
        try:
            is_ours = self.store.read(names.PLANNING) == self._marker
        except Missing:
            is_ours = False
        if not is_ours:
            raise TakenOver(f"another plan took {self.root} over while this one ran: wait for it, then look at the run")

    def clear_shards(self) -> None:
        """Remove all shards, to write them anew."""
        _remove_tree(self.root / names.UNITS)
        self.store.make_folder(names.UNITS)

    def finish(self, manifest: bytes) -> None:
        """Write run.json: from here on the run is whole."""
        _sync_folder(self.root / names.UNITS)
        self.check_ours()
        self.store.replace(names.MANIFEST, manifest)
        _sync_folder(self.root)
        self.store.remove(names.PLANNING)


class TakenOver(InputError):
    """Another plan works in the folder now: leave it alone."""


@contextlib.contextmanager
def occupied(root: Path, dead: bytes = b"") -> Iterator[Workspace]:
    """Plan in a folder that `look` found vacant or unfinished. On any failure it is left as it was, debris gone.

    `dead` is the marker of the plan that died there.
    """
    made = _make_root(root)
    store = PosixStore(root)
    token = secrets.token_hex(8)
    marker = codec.encode(Marker(process=this_process(), token=token))
    try:
        _claim(store, marker, dead)
    except BaseException:
        _remove_made(made)
        raise
    try:
        _clean(root)
        with beating(store, token):
            yield Workspace(store, marker)
    except TakenOver:
        raise
    except BaseException:
        _undo(store, made)
        raise


def _make_root(root: Path) -> list[Path]:
    """Create the folder; return those that were made for it, deepest first."""
    missing = [path for path in (root, *root.parents) if not path.exists()]
    with disk_faults(str(root)):
        os.makedirs(root, exist_ok=True)
    return missing


def _claim(store: PosixStore, marker: bytes, dead: bytes) -> None:
    with disk_faults(str(store.root)):
        try:
            if store.create(names.PLANNING, marker):
                return
        except StoreError:
            _remove_partial_marker(store, marker)
            raise
    if _read_marker(store) not in (dead, b""):
        raise _just_begun(store)
    store.remove(names.PLANNING)
    if not store.create(names.PLANNING, marker):
        raise _just_begun(store)


def _just_begun(store: Store) -> InputError:
    return InputError(f"another plan has just begun in {store.root}: wait for it, or choose another folder for --run")


def _read_marker(store: Store) -> bytes:
    """Return the marker that stands; empty where there is none, or its writer died before it could say who it was."""
    try:
        return store.read(names.PLANNING)
    except Missing:
        return b""


def _refuse_living(store: Store, progress: Progress) -> bytes:
    """Refuse a folder whose marker is not a dead process's; return the marker."""
    content = _read_marker(store)
    try:
        marker = codec.decode(content, Marker, where=f"{store.root}/{names.PLANNING}")
    except Damaged:
        return content
    process, here = marker.process, this_process()
    if is_dead(process) or _was_rebooted(process):
        return content
    is_watchable = (process.host, process.boot_id) != (here.host, here.boot_id)
    if is_watchable and is_silent(store, marker.token, progress=progress):
        return content
    raise InputError(
        f"{store.root} is being planned by process {process.pid} on {process.host}: "
        "wait for it, or choose another folder for --run"
    )


def _was_rebooted(process: Process) -> bool:
    """Whether the process ran on this host before its last boot."""
    here = this_process()
    return process.host == here.host and process.boot_id.split("/")[0] != here.boot_id.split("/")[0]


def _remove_partial_marker(store: Store, marker: bytes) -> None:
    """Remove a marker of ours that a full disk cut short."""
    with contextlib.suppress(StoreError):
        if marker.startswith(store.read(names.PLANNING)):
            store.remove(names.PLANNING)


def _undo(store: Store, made: list[Path]) -> None:
    if (store.root / names.MANIFEST).exists():
        return  # interrupted after the run was whole: agents may be at work already
    with contextlib.suppress(OSError, StoreError):
        _clean(store.root)
        store.remove(names.PLANNING)
    _remove_made(made)


def _remove_made(made: list[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in made:
            folder.rmdir()


def _clean(root: Path) -> None:
    """Remove what plans make, and nothing else."""
    for name in _OWN_FOLDERS:
        _remove_tree(root / name)
    for pattern in (f"{names.MANIFEST}{TEMPORARY}*", names.pulse("*")):
        for path in root.glob(pattern):
            path.unlink(missing_ok=True)


def _remove_tree(folder: Path) -> None:
    with disk_faults(str(folder)), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the filesystem can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
