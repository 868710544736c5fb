"""A simulated network filesystem: the server, a client per host, and what was measured of real ones.

Modelled (here and in `calls`): names remembered as absent for up to a minute; content and listings fresh after open
(or some seconds old, `content_lag_s`); replies that are lost after the call took effect, so that the caller sees an
error, or its repetition sees EEXIST or ENOENT; calls that take effect after the caller saw an error, or died; ESTALE,
EIO, ENOSPC; files that stand empty between their creation and their first write; sessions read while they are half
rewritten; `.nfs` names; calls that hang for minutes; hard links that are not exclusive.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from simulation.clockwork import Clockwork, Process

ABSENT_S = 60.0
"""A client remembers at most so long that a name was absent (DESIGN: 24 s measured, 60 s seen)."""

LINK = "link"
FILE = "file"


@dataclass(slots=True)
class Entry:
    """A name's file or symbolic link."""

    kind: str
    content: bytes
    since_s: float


@dataclass(slots=True)
class Server:
    """The truth. `on_change` is told each change (what, path); `on_call` each request when it is sent."""

    clockwork: Clockwork
    folders: dict[str, dict[str, Entry]] = field(default_factory=dict)
    """Folder → its files."""
    subfolders: dict[str, set[str]] = field(default_factory=dict)
    """Folder → the names of folders in it."""
    on_change: Callable[[str, str], None] = lambda what, path: None
    on_call: Callable[[Process, str, str], None] = lambda process, what, path: None
    on_answer: Callable[[Process, str, str, str], None] | None = None
    """Told each answer: process, call, path, outcome."""
    n_calls: int = 0
    is_full: bool = False

    def folder(self, path: str) -> dict[str, Entry]:
        found = self.folders.get(path)
        if found is None:
            refuse(errno.ENOENT)
        return found

    def names(self, path: str) -> list[str]:
        return sorted([*self.folder(path), *self.subfolders.get(path, ())])

    def make_folder(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        self.folders.setdefault(path, {})
        self.subfolders.setdefault(parent, set()).add(name)

    def move_folder(self, path: str, target: str) -> None:
        files = self.folders.pop(path)
        self.subfolders[path.rpartition("/")[0]].discard(path.rpartition("/")[2])
        self.make_folder(target)
        self.folders[target] = files
        self.on_change("move", path)

    def drop_folder(self, path: str) -> None:
        if self.folder(path):
            refuse(errno.ENOTEMPTY)
        del self.folders[path]
        self.subfolders[path.rpartition("/")[0]].discard(path.rpartition("/")[2])

    def get(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        return self.folder(folder).get(name)

    def put(self, what: str, path: str, entry: Entry) -> None:
        folder, _, name = path.rpartition("/")
        self.folder(folder)[name] = entry
        self.on_change(what, path)

    def drop(self, path: str, what: str = "unlink") -> Entry:
        folder, _, name = path.rpartition("/")
        entry = self.folder(folder).pop(name, None)
        if entry is None:
            refuse(errno.ENOENT)
        self.on_change(what, path)
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How unreliable the filesystem is: probabilities per call, and delays."""

    error: float = 0.0
    """An error before the call took effect."""
    lost_reply: float = 0.0
    """An error after it."""
    repeated: float = 0.0
    """The call is repeated by the transport after it took effect: the caller sees the second answer."""
    late: float = 0.0
    """An error, and the call takes effect some seconds later."""
    hang: float = 0.0
    content_lag_s: float = 0.0
    latency_s: float = 0.002
    is_link_exclusive: bool = True
    """Whether the second of two hard links to one name is refused (not so on distributed GlusterFS)."""

    @property
    def is_reliable(self) -> bool:
        """Whether every call does at once what it was asked for."""
        return not (self.error or self.lost_reply or self.repeated or self.late or self.hang)


CALM = Weather()


@dataclass(slots=True)
class Client:
    """One host's mount; its processes share what it remembers."""

    server: Server
    weather: Weather
    absent: dict[str, float] = field(default_factory=dict)
    """Path → until when it is remembered as absent."""
    cached: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    """Path → when this client saw it, and what."""

    def forget(self, path: str) -> None:
        self.absent.pop(path, None)


def refuse(number: int) -> NoReturn:
    """Raise what the system raises."""
    raise OSError(number, os.strerror(number))
