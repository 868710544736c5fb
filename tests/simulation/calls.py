"""The system calls of a simulated process: what `fsctx.store.system.System` does, on the simulated filesystem."""

import contextlib
import errno
import io
import os
import posixpath
from collections.abc import Callable
from random import Random
from typing import Any, BinaryIO

from simulation.clockwork import Clockwork, Process
from simulation.sharedfs import ABSENT_S, FILE, LINK, Client, Entry, refuse


class SimSystem:
    """The calls of one process on one client. `mtime` is for planted faults: fsctx makes no such call."""

    def __init__(self, clockwork: Clockwork, client: Client, process: Process) -> None:
        self._clockwork = clockwork
        self._client = client
        self._server = client.server
        self._process = process

    @property
    def _chance(self) -> Random:
        return self._clockwork.chance

    def listdir(self, path: str) -> list[str]:
        return self._call("list", path, lambda: self._server.names(path))

    def read(self, path: str) -> bytes:
        return self._look_up("read", path, lambda entry: self._content(path, entry))

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def readlink(self, path: str) -> str:
        def content(entry: Entry) -> str:
            if entry.kind != LINK:
                refuse(errno.EINVAL)
            return entry.content.decode()

        return self._look_up("readlink", path, content)

    def mtime(self, path: str) -> float:
        return self._look_up("stat", path, lambda entry: entry.since_s)

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        self._client.forget(path)
        self._call("create", path, lambda: self._create(path), is_change=True)
        self._call("write", path, lambda: self._write("write", path, content), is_change=True)

    def overwrite(self, path: str, content: bytes) -> None:
        self._client.forget(path)
        if self._chance.random() < 0.1:
            old = self._server.get(path)
            half = len(content) // 2
            torn = content[:half] + (old.content[half:] if old else b"")
            self._call("rewrite", path, lambda: self._write("rewrite", path, torn), is_change=True)
        self._call("rewrite", path, lambda: self._write("rewrite", path, content), is_change=True)

    def append(self, path: str, content: bytes) -> None:
        """Event logs say nothing to the protocol: their calls count, their content does not."""
        self._call("append", path, lambda: None)

    def rename(self, source: str, target: str) -> None:
        self._client.forget(target)

        def rename() -> None:
            if source in self._server.folders:
                return self._server.move_folder(source, target)
            self._check_room()
            entry = self._server.drop(source, "move")
            entry.since_s = self._clockwork.now_s
            return self._server.put("rename", target, entry)

        self._call("rename", target, rename, is_change=True)

    def symlink(self, target: str, path: str) -> None:
        self._client.forget(path)

        def symlink() -> None:
            self._check_absent(path)
            self._server.put("symlink", path, Entry(LINK, target.encode(), self._clockwork.now_s))

        self._call("symlink", path, symlink, is_change=True)

    def link(self, source: str, path: str) -> None:
        self._client.forget(path)

        def link() -> None:
            if self._client.weather.is_link_exclusive:
                self._check_absent(path)
            entry = self._server.get(source)
            if entry is None:
                refuse(errno.ENOENT)
            self._server.put("link", path, Entry(FILE, entry.content, self._clockwork.now_s))

        self._call("link", path, link, is_change=True)

    def unlink(self, path: str) -> None:
        def unlink() -> None:
            entry = self._server.drop(path)
            if self._chance.random() < 0.1:  # somebody had it open
                folder = self._server.folder(posixpath.dirname(path))
                folder[f".nfs{self._chance.getrandbits(64):016x}"] = entry

        self._call("unlink", path, unlink, is_change=True)

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path, lambda: self._server.drop_folder(path), is_change=True)

    def makedirs(self, path: str) -> None:
        def make() -> None:
            parts = path.split("/")
            for i in range(2, len(parts) + 1):
                self._server.make_folder("/".join(parts[:i]))

        self._call("mkdir", path, make, is_change=True)

    def _create(self, path: str) -> None:
        self._check_absent(path)
        self._check_room()
        self._server.put("create", path, Entry(FILE, b"", self._clockwork.now_s))

    def _write(self, what: str, path: str, content: bytes) -> None:
        self._check_room()
        self._server.put(what, path, Entry(FILE, content, self._clockwork.now_s))
        self._client.cached[path] = (self._clockwork.now_s, content)

    def _check_absent(self, path: str) -> None:
        if self._server.get(path) is not None:
            refuse(errno.EEXIST)

    def _check_room(self) -> None:
        if self._server.is_full:
            refuse(errno.ENOSPC)

    def _content(self, path: str, entry: Entry) -> bytes:
        """Return a file's content, or what this client saw of it some seconds ago."""
        now_s, lag_s = self._clockwork.now_s, self._client.weather.content_lag_s
        seen_s, content = self._client.cached.get(path, (-1e9, b""))
        if lag_s and now_s - seen_s < lag_s * self._chance.random():
            return content
        self._client.cached[path] = (now_s, entry.content)
        return entry.content

    def _look_up(self, what: str, path: str, use: Callable[[Entry], Any]) -> Any:
        """Look a name up, which this client may remember as absent. Reading follows symbolic links, as kernels do."""
        if self._client.absent.get(path, -1.0) > self._clockwork.now_s:
            refuse(errno.ENOENT)

        def look() -> Any:
            entry = self._server.get(path)
            if entry is not None and entry.kind == LINK and what == "read":
                entry = self._server.get(posixpath.normpath(f"{posixpath.dirname(path)}/{entry.content.decode()}"))
            if entry is None:
                self._client.absent[path] = self._clockwork.now_s + self._chance.random() * ABSENT_S
                refuse(errno.ENOENT)
            return use(entry)

        return self._call(what, path, look)

    def _call(self, what: str, path: str, effect: Callable[[], Any], *, is_change: bool = False) -> Any:
        """Make a request, and tell who traces it how it ended."""
        self._server.n_calls += 1
        self._server.on_call(self._process, what, path)
        if self._server.on_answer is None:
            return self._request(effect, is_change=is_change)
        try:
            result = self._request(effect, is_change=is_change)
        except OSError as error:
            self._server.on_answer(self._process, what, path, errno.errorcode[error.errno or 0])
            raise
        self._server.on_answer(self._process, what, path, "ok")
        return result

    def _request(self, effect: Callable[[], Any], *, is_change: bool) -> Any:
        """Send a request, let it take effect (or not, or later, or twice), and answer."""
        kind = self._draw(is_change=is_change)
        self._process.in_flight.append(effect)
        try:
            self._clockwork.pause(self._chance.uniform(60.0, 300.0) if kind == "hang" else self._latency())
        finally:
            self._process.in_flight = [other for other in self._process.in_flight if other is not effect]
        if kind == "error":
            raise _some_error(self._chance, is_change=is_change)
        if kind == "late":
            self._serve_later(effect)
            refuse(errno.EIO)
        result = effect()
        if kind == "repeated":
            result = effect()
        self._clockwork.pause(self._latency())
        if kind == "lost_reply":
            refuse(errno.EIO)
        return result

    def _draw(self, *, is_change: bool) -> str:
        weather = self._client.weather
        if weather.is_reliable:
            return "fine"
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
        return self._chance.random() * 2 * self._client.weather.latency_s

    def _serve_later(self, effect: Callable[[], Any]) -> None:
        ghost = Process(name=f"{self._process.name}'s late request", host="wire")

        def serve() -> None:
            with contextlib.suppress(OSError):
                effect()

        self._clockwork.spawn(ghost, serve, after_s=self._chance.uniform(0.0, 20.0))


def _some_error(chance: Random, *, is_change: bool) -> OSError:
    number = chance.choice([errno.EIO, errno.ESTALE, errno.EIO] + ([errno.ENOSPC] if is_change else []))
    return OSError(number, os.strerror(number))
