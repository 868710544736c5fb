"""Serves this node's chunks over HTTP, from one thread, by sendfile(2): the device's work goes on beside it."""

import asyncio
import contextlib
import hmac
import logging
import os
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from fsctx.cache.chunks import Place, Shelf
from fsctx.cache.peers.wire import CHUNK, KEY_HEADER, MAP, ChunkMap, encode_map

_TURNS_TO_ACCEPT = 3
"""So many turns of the loop does asyncio need from accept(2) until a connection is one of ours."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SILENT = logging.getLogger("fsctx.peers")
"""Has no handler: a stranger's broken request is nobody's business here."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much others may ask of this node."""

    uploads: int = 3
    """Chunks that are sent at once; further ones are told to come back."""
    connections: int = 128
    requests_per_s: int = 500
    hello_s: float = 10.0
    """A connection that asked for nothing after so long is closed."""
    idle_s: float = 60.0
    slowest_bytes_per_s: int = 256 << 10
    """A chunk that is taken more slowly is not sent to its end."""
    header_bytes: int = 1024
    headers: int = 32


class PeerServer:
    """Serves the chunks of some contexts to who knows the secret. `coming` says what is read from the origin now."""

    def __init__(
        self,
        shelf: Shelf,
        digests: frozenset[str],
        secret: str,
        *,
        coming: Callable[[str], bytes] = lambda _: b"",
        limits: ServerLimits | None = None,
    ) -> None:
        self._shelf = shelf
        self._digests = digests
        self._secret = secret.encode()
        self._coming = coming
        self._limits = limits or ServerLimits()
        self._n_uploads = 0
        self._answers: set[asyncio.Task[Any]] = set()
        self._this_second = (0, 0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self, address: str) -> int:
        """Listen on a free port of an address of this node, on a thread of its own; return the port.

        Raises:
            OSError: the address is none of this node's.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.create_server((address, 0), family=family, backlog=self._limits.connections)
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening, started), name="peers", daemon=True)
        self._thread.start()
        started.wait()
        return int(listening.getsockname()[1])

    def stop(self) -> None:
        """Close the port and all connections, at once; return when that is done."""
        if self._loop is not None and self._end is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it ended already
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _run(self, listening: socket.socket, started: threading.Event) -> None:
        asyncio.run(self._serve(listening, started))

    async def _serve(self, listening: socket.socket, started: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="shelf"))
        server = web.Server(self._answer)
        connections = _Connections()
        door = await self._loop.create_server(lambda: _Door(server, self._limits, connections), sock=listening)
        started.set()
        await self._end.wait()
        self._loop.remove_reader(listening)
        for _ in range(_TURNS_TO_ACCEPT):  # who is being accepted when the door closes would stay behind
            await asyncio.sleep(0)
        door.close()
        await self._give_up_answers()
        await server.shutdown(0)
        await connections.end()

    async def _give_up_answers(self) -> None:
        """End what is being sent before its connection: asyncio's sendfile cannot bear to lose that on the way."""
        for answer in self._answers:
            answer.cancel()
        if self._answers:
            await asyncio.wait(self._answers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        request.protocol.has_asked = True  # type: ignore[attr-defined]
        if not self._is_admitted():
            return _told_to_wait()
        shown = request.headers.get(KEY_HEADER, "").encode(errors="replace")
        if not hmac.compare_digest(shown, self._secret):
            return _refusal(403)
        if request.method != "GET":
            return _refusal(405)
        match request.path.split("/"):
            case ["", kind, digest] if kind == MAP and digest in self._digests:
                return await self._map(digest)
            case ["", kind, sha256] if kind == CHUNK and _SHA256.fullmatch(sha256):
                return await self._chunk(request, sha256)
        return _refusal(404)

    def _is_admitted(self) -> bool:
        assert self._loop is not None
        second, n_requests = int(self._loop.time()), 1
        if second == self._this_second[0]:
            n_requests += self._this_second[1]
        self._this_second = second, n_requests
        return n_requests <= self._limits.requests_per_s

    async def _map(self, digest: str) -> web.Response:
        held = await asyncio.to_thread(self._shelf.held, digest)
        return web.Response(
            body=encode_map(ChunkMap(held=held, coming=self._coming(digest))), content_type="application/json"
        )

    async def _chunk(self, request: web.BaseRequest, sha256: str) -> web.StreamResponse:
        if self._n_uploads >= self._limits.uploads:
            return _told_to_wait()
        self._n_uploads += 1
        try:
            place = await asyncio.to_thread(self._shelf.place, sha256)
            if place is None:
                return _refusal(404)
            return await self._send(request, place)
        finally:
            self._n_uploads -= 1

    async def _send(self, request: web.BaseRequest, place: Place) -> web.StreamResponse:
        first, last = _asked_for(request, place.size_bytes)
        if first >= last:
            return _refusal(416)
        try:
            file = open(os.open(place.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")  # noqa: SIM115
        except OSError:  # it was thrown out of the cache meanwhile
            return _refusal(404)
        with file:
            response = web.StreamResponse()
            response.content_length = last - first
            if last - first < place.size_bytes:
                response.set_status(206)
                response.headers["Content-Range"] = f"bytes {first}-{last - 1}/{place.size_bytes}"
            await response.prepare(request)
            async with asyncio.timeout(self._limits.hello_s + (last - first) / self._limits.slowest_bytes_per_s):
                await self._sendfile(request, file, place.offset + first, last - first)
            await response.write_eof()
            return response

    async def _sendfile(self, request: web.BaseRequest, file: object, offset: int, size_bytes: int) -> None:
        assert self._loop is not None
        if request.transport is None:
            raise ConnectionResetError("the peer hung up")
        sent = await self._loop.sendfile(request.transport, file, offset, size_bytes)  # type: ignore[arg-type]
        if sent != size_bytes:  # the file was cut short: what was promised cannot be kept
            request.transport.abort()


class _NoAccessLog(AbstractAccessLogger):
    """Writes nothing, and takes no time to."""

    @property
    def enabled(self) -> bool:
        return False

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """See the base class."""


class _Connections:
    """The connections that are open. One that is closed politely stays open until its last byte is taken."""

    def __init__(self) -> None:
        self._open: set[asyncio.Transport] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def add(self, transport: asyncio.Transport) -> None:
        """Note a new one."""
        self._open.add(transport)
        self._is_empty.clear()

    def remove(self, transport: asyncio.Transport) -> None:
        """Note that one is lost."""
        self._open.discard(transport)
        if not self._open:
            self._is_empty.set()

    async def end(self) -> None:
        """Cut all."""
        for transport in self._open:
            transport.abort()
        await self._is_empty.wait()


class _Door(web.RequestHandler):
    """One connection: closed at once where there are too many, and soon where nothing is asked."""

    __slots__ = ("_connections", "_limits", "_own", "has_asked")

    def __init__(self, server: web.Server, limits: ServerLimits, connections: _Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=_SILENT,
            access_log_class=_NoAccessLog,
            logger=_SILENT,
            keepalive_timeout=limits.idle_s,
            lingering_time=0,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.headers,
        )
        self._limits = limits
        self._connections = connections
        self._own: asyncio.Transport | None = None
        self.has_asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._own = transport
        self._connections.add(transport)
        assert self._manager is not None
        if len(self._manager.connections) > self._limits.connections:
            self.force_close()
            return
        asyncio.get_running_loop().call_later(self._limits.hello_s, self._leave_if_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._own is not None:
            self._connections.remove(self._own)

    def _leave_if_silent(self) -> None:
        if not self.has_asked:
            self.force_close()


def _asked_for(request: web.BaseRequest, size_bytes: int) -> tuple[int, int]:
    """Return the first byte that is asked for, and the one after the last."""
    try:
        asked = request.http_range
    except ValueError:
        return 0, 0
    first, last, _ = slice(asked.start, asked.stop).indices(size_bytes)
    return first, last


def _refusal(status: int) -> web.Response:
    response = web.Response(status=status)
    if status == 403:
        response.force_close()
    return response


def _told_to_wait() -> web.Response:
    return web.Response(status=503, headers={"Retry-After": "1"})
