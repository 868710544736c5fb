"""One connection to one peer, kept alive. Every answer is bounded in time and size, and none is believed."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse

from fsctx.cache.chunks import Chunk
from fsctx.cache.peers.wire import CHUNK, KEY_HEADER, MAP, MAX_MAP_BYTES, ChunkMap, decode_map
from fsctx.errors import Damaged, FsctxError
from fsctx.protocol.peers import PeerRecord

_PIECE_BYTES = 256 << 10

_WAKE_BYTES = 128 << 10
"""So much has to be there before this process is woken: a link brings it in hundreds of small pieces."""


class Fault(StrEnum):
    """Why a peer gave nothing."""

    BUSY = "busy"
    """It serves enough others just now."""
    GONE = "gone"
    """It does not have that chunk (any more)."""
    UNREACHABLE = "unreachable"
    SLOW = "slow"
    REFUSED = "refused"
    """It knows another secret, or is something else altogether."""
    BROKEN = "broken"
    """It broke off, or its answer is not what was asked for."""
    WRONG = "wrong"
    """Its bytes are not the chunk's."""


class PeerFailed(FsctxError):
    """A peer gave nothing; `fault` says what to do about it."""

    def __init__(self, fault: Fault, seen: str) -> None:
        super().__init__(f"{fault}: {seen}")
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How long a peer is waited for."""

    connect_s: float = 2.0
    silence_s: float = 5.0
    """Longest time between two pieces of an answer."""
    slowest_bytes_per_s: int = 256 << 10


class PeerClient:
    """Asks one peer. One thread uses it. Proxies named in the environment are not asked, redirects not followed."""

    def __init__(
        self,
        record: PeerRecord,
        secret: str,
        *,
        limits: ClientLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or ClientLimits()
        self._clock = clock
        self._connection = HTTPConnection(record.address, record.port, timeout=self._limits.connect_s)
        self._headers = {KEY_HEADER: secret}
        self._buffer = bytearray()

    def map(self, digest: str) -> ChunkMap:
        """Ask which of a context's chunks the peer has.

        Raises:
            PeerFailed: it did not say.
        """
        try:
            return decode_map(bytes(self._get(f"/{MAP}/{digest}", most_bytes=MAX_MAP_BYTES)))
        except Damaged as error:
            raise PeerFailed(Fault.BROKEN, str(error)) from None

    def chunk(self, chunk: Chunk, heard: Callable[[], None] = lambda: None) -> memoryview:
        """Ask for a chunk. What comes has its size; whether it is the chunk is for the caller to find out.

        `heard` is called with each piece that comes. What is returned holds until something else is asked for.

        Raises:
            PeerFailed: it did not come, not whole, or not fast enough.
        """
        data = self._get(f"/{CHUNK}/{chunk.sha256}", most_bytes=chunk.size_bytes, heard=heard)
        if len(data) != chunk.size_bytes:
            raise PeerFailed(Fault.BROKEN, f"{len(data)} bytes came of a chunk of {chunk.size_bytes}")
        return data

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _get(self, path: str, *, most_bytes: int, heard: Callable[[], None] = lambda: None) -> memoryview:
        response = None
        try:
            response = self._ask(path)
            if response.status != HTTPStatus.OK:
                response.read(1)  # ends an answer that has nothing more to say
                raise _refusal(response.status)
            return self._read(response, most_bytes, heard)
        except TimeoutError as error:
            raise PeerFailed(Fault.SLOW, str(error)) from None
        except (HTTPException, OSError, ValueError) as error:
            raise PeerFailed(Fault.BROKEN, str(error) or type(error).__name__) from None
        finally:
            if response is None or not response.isclosed():
                self._connection.close()

    def _ask(self, path: str) -> HTTPResponse:
        if self._connection.sock is None:
            self._connect()
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse()

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except OSError as error:
            raise PeerFailed(Fault.UNREACHABLE, str(error)) from None
        self._connection.sock.settimeout(self._limits.silence_s)

    def _read(self, response: HTTPResponse, most_bytes: int, heard: Callable[[], None]) -> memoryview:
        """Read an answer, which must say how long it is."""
        size_bytes = response.length
        if size_bytes is None or size_bytes > most_bytes:
            raise PeerFailed(Fault.BROKEN, f"it offers {size_bytes or 'an unknown number of'} bytes, not {most_bytes}")
        if len(self._buffer) < size_bytes:
            self._buffer = bytearray(size_bytes)
        view = memoryview(self._buffer)[:size_bytes]
        end_s = self._clock() + self._limits.silence_s + most_bytes / self._limits.slowest_bytes_per_s
        n_bulk = max(0, size_bytes - 2 * _WAKE_BYTES)  # whoever waits for more than is to come waits in vain
        for part, wake_bytes in ((view[:n_bulk], _WAKE_BYTES), (view[n_bulk:], 1)):
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)
            self._fill(part, response, end_s, heard)
        return view

    def _fill(self, view: memoryview, response: HTTPResponse, end_s: float, heard: Callable[[], None]) -> None:
        n_done = 0
        while n_done < len(view):
            piece = response.read1(min(_PIECE_BYTES, len(view) - n_done))
            if not piece:
                raise PeerFailed(Fault.BROKEN, "it broke off")
            view[n_done : n_done + len(piece)] = piece
            n_done += len(piece)
            heard()
            if self._clock() > end_s:
                raise PeerFailed(Fault.SLOW, f"{n_done} of {len(view)} bytes came in time")


def _refusal(status: int) -> PeerFailed:
    match status:
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return PeerFailed(Fault.BUSY, "it serves enough others")
        case HTTPStatus.NOT_FOUND:
            return PeerFailed(Fault.GONE, "it does not have that")
    return PeerFailed(Fault.REFUSED, f"it answered {status}")
