"""A simulated network filesystem: one server, a client per host, and what was measured of real ones.

Modelled: names remembered as absent for up to a minute; content and listings fresh after open (or some
seconds old, `content_lag_s`); replies that are lost after the call took effect, so that the caller sees an error, or
its repetition sees EEXIST or ENOENT; calls that take effect after the caller saw an error, or died; ESTALE, EIO,
ENOSPC; files that stand empty between their creation and their first write; sessions read while they
are half rewritten; `.nfs` names; calls that hang for minutes.
"""

import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, BinaryIO

from simulation.clockwork import Clockwork, Killed, Process

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
    """The truth. `on_change` is told each change: (what, path)."""

    clockwork: Clockwork
    folders: dict[str, dict[str, Entry]] = field(default_factory=dict)
    on_change: Callable[[str, str], None] = lambda what, path: None
    n_calls: int = 0
    is_full: bool = False

    def folder(self, path: str) -> dict[str, Entry]:
        found = self.folders.get(path)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return found

    def get(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        return self.folder(folder).get(name)

    def put(self, what: str, path: str, entry: Entry) -> None:
        folder, _, name = path.rpartition("/")
        self.folder(folder)[name] = entry
        self.on_change(what, path)

    def drop(self, path: str) -> Entry:
        folder, _, name = path.rpartition("/")
        entry = self.folder(folder).pop(name, None)
        if entry is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.on_change("unlink", path)
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


CALM = Weather()


@dataclass(slots=True)
class Client:
    """One host's mount; its processes share what it remembers."""

    server: Server
    weather: Weather
    absent: dict[str, float] = field(default_factory=dict)
    """Path → until when it is remembered as absent."""
    cached: dict[str, tuple[float, bytes]] = field(default_factory=dict)

    def forget(self, path: str) -> None:
        self.absent.pop(path, None)


class SimSystem:
    """See `fsctx.store.system.System`: the calls of one process on one client."""

    def __init__(self, clockwork: Clockwork, client: Client, process: Process) -> None:
        self._clockwork = clockwork
        self._client = client
        self._server = client.server
        self._process = process

    @property
    def _chance(self) -> Random:
        return self._clockwork.chance

    def listdir(self, path: str) -> list[str]:
        return self._call(lambda: sorted(self._server.folder(path)))

    def read(self, path: str) -> bytes:
        return self._look_up(path, lambda entry: self._content(path, entry))

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def readlink(self, path: str) -> str:
        def content(entry: Entry) -> str:
            if entry.kind != LINK:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return entry.content.decode()

        return self._look_up(path, content)

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        self._client.forget(path)
        self._call(lambda: self._create(path), is_change=True)
        self._call(lambda: self._write(path, content, "write"), is_change=True)

    def overwrite(self, path: str, content: bytes) -> None:
        self._client.forget(path)
        if self._chance.random() < 0.1:
            old = self._server.get(path)
            half = len(content) // 2
            torn = content[:half] + (old.content[half:] if old else b"")
            self._call(lambda: self._write(path, torn, "rewrite"), is_change=True)
        self._call(lambda: self._write(path, content, "rewrite"), is_change=True)

    def append(self, path: str, content: bytes) -> None:
        """Event logs say nothing to the protocol: their calls count, their content does not."""
        self._call(lambda: None)

    def rename(self, source: str, target: str) -> None:
        self._client.forget(target)

        def rename() -> None:
            self._check_room()
            entry = self._server.drop(source)
            entry.since_s = self._clockwork.now_s
            self._server.put("rename", target, entry)

        self._call(rename, is_change=True)

    def symlink(self, target: str, path: str) -> None:
        self._client.forget(path)

        def symlink() -> None:
            if self._server.get(path) is not None:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._server.put("symlink", path, Entry(LINK, target.encode(), self._clockwork.now_s))

        self._call(symlink, is_change=True)

    def unlink(self, path: str) -> None:
        self._call(lambda: self._server.drop(path), is_change=True)

    def makedirs(self, path: str) -> None:
        def make() -> None:
            parts = path.split("/")
            for i in range(1, len(parts) + 1):
                self._server.folders.setdefault("/".join(parts[:i]), {})

        self._call(make, is_change=True)

    def _create(self, path: str) -> None:
        if self._server.get(path) is not None:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._check_room()
        self._server.put("create", path, Entry(FILE, b"", self._clockwork.now_s))

    def _write(self, path: str, content: bytes, what: str) -> None:
        self._check_room()
        self._server.put(what, path, Entry(FILE, content, self._clockwork.now_s))
        self._client.cached[path] = (self._clockwork.now_s, content)

    def _check_room(self) -> None:
        if self._server.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _content(self, path: str, entry: Entry) -> bytes:
        """Return a file's content, or what this client saw of it some seconds ago."""
        now_s, lag_s = self._clockwork.now_s, self._client.weather.content_lag_s
        seen_s, content = self._client.cached.get(path, (-1e9, b""))
        if now_s - seen_s < lag_s * self._chance.random():
            return content
        self._client.cached[path] = (now_s, entry.content)
        return entry.content

    def _look_up(self, path: str, use: Callable[[Entry], Any]) -> Any:
        """Look a name up, which this client may remember as absent."""
        if self._client.absent.get(path, -1.0) > self._clockwork.now_s:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

        def look() -> Any:
            entry = self._server.get(path)
            if entry is None:
                self._client.absent[path] = self._clockwork.now_s + self._chance.random() * ABSENT_S
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            return use(entry)

        return self._call(look)

    def _call(self, effect: Callable[[], Any], *, is_change: bool = False) -> Any:
        """Send a request, let it take effect (or not, or later, or twice), and answer."""
        server, weather, chance = self._server, self._client.weather, self._chance
        server.n_calls += 1
        kind = self._draw(weather, is_change=is_change)
        self._process.in_flight.append(effect)
        try:
            self._clockwork.pause(chance.uniform(60.0, 300.0) if kind == "hang" else self._latency())
        finally:
            if effect in self._process.in_flight:
                self._process.in_flight.remove(effect)
        if kind == "error":
            raise _some_error(chance, is_change=is_change)
        if kind == "late":
            self._serve_later(effect)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        result = effect()
        if kind == "repeated":
            result = effect()
        self._clockwork.pause(self._latency())
        if kind == "lost_reply":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return result

    def _draw(self, weather: Weather, *, is_change: bool) -> str:
        kinds = [("error", weather.error), ("hang", weather.hang)]
        if is_change:
            kinds += [("lost_reply", weather.lost_reply), ("repeated", weather.repeated), ("late", weather.late)]
        dice = self._chance.random()
        for kind, share in kinds:
            if dice < share:
                return kind
            dice -= share
        return "fine"

    def _latency(self) -> float:
        return self._chance.expovariate(1.0) * self._client.weather.latency_s

    def _serve_later(self, effect: Callable[[], Any]) -> None:
        ghost = Process(name=f"{self._process.name}'s late request", host="wire")

        def serve() -> None:
            try:
                effect()
            except OSError:
                pass

        self._clockwork.spawn(ghost, serve, after_s=self._chance.uniform(0.0, 20.0))


def _some_error(chance: Random, *, is_change: bool) -> OSError:
    number = chance.choice([errno.EIO, errno.ESTALE, errno.EIO] + ([errno.ENOSPC] if is_change else []))
    return OSError(number, os.strerror(number))


__all__ = ["CALM", "Client", "Entry", "Killed", "Server", "SimSystem", "Weather"]
