"""One connection to one peer, kept alive. Every answer is bounded in time and size, and none is believed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.util import Timeout

from fsctx.cache.chunks import Chunk
from fsctx.cache.peers.wire import CHUNK, KEY_HEADER, MAP, MAX_MAP_BYTES, ChunkMap, decode_map
from fsctx.errors import Damaged, FsctxError
from fsctx.protocol.peers import PeerRecord

_READ_BYTES = 1 << 20


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
        host = f"[{record.address}]" if ":" in record.address else record.address
        self._pool = urllib3.HTTPConnectionPool(
            host,
            record.port,
            timeout=Timeout(connect=self._limits.connect_s, read=self._limits.silence_s),
            maxsize=1,
            retries=False,
            headers={KEY_HEADER: secret},
        )

    def map(self, digest: str) -> ChunkMap:
        """Ask which of a context's chunks the peer has.

        Raises:
            PeerFailed: it did not say.
        """
        data = bytearray()
        self._get(f"/{MAP}/{digest}", data, most_bytes=MAX_MAP_BYTES)
        try:
            return decode_map(bytes(data))
        except Damaged as error:
            raise PeerFailed(Fault.BROKEN, str(error)) from None

    def chunk(self, chunk: Chunk, heard: Callable[[], None] = lambda: None) -> bytearray:
        """Ask for a chunk. What comes has its size; whether it is the chunk is for the caller to find out.

        `heard` is called with each piece that comes.

        Raises:
            PeerFailed: it did not come, not whole, or not fast enough.
        """
        data = bytearray()
        self._get(f"/{CHUNK}/{chunk.sha256}", data, most_bytes=chunk.size_bytes, heard=heard)
        if len(data) != chunk.size_bytes:
            raise PeerFailed(Fault.BROKEN, f"{len(data)} bytes came of a chunk of {chunk.size_bytes}")
        return data

    def close(self) -> None:
        """Hang up."""
        self._pool.close()

    def _get(self, path: str, data: bytearray, *, most_bytes: int, heard: Callable[[], None] = lambda: None) -> None:
        try:
            response = self._pool.request("GET", path, redirect=False, preload_content=False, decode_content=False)
        except NewConnectionError as error:
            raise PeerFailed(Fault.UNREACHABLE, str(error)) from None
        except urllib3.exceptions.ConnectTimeoutError as error:
            raise PeerFailed(Fault.UNREACHABLE, str(error)) from None
        except urllib3.exceptions.ReadTimeoutError as error:
            raise PeerFailed(Fault.SLOW, str(error)) from None
        except (HTTPError, OSError, ValueError) as error:
            raise PeerFailed(Fault.BROKEN, str(error)) from None
        is_whole = False
        try:
            _check_status(response)
            self._read(response, data, most_bytes, heard)
            is_whole = True
        finally:
            if is_whole:
                response.release_conn()
            else:
                response.close()

    def _read(
        self, response: urllib3.BaseHTTPResponse, data: bytearray, most_bytes: int, heard: Callable[[], None]
    ) -> None:
        end_s = self._clock() + self._limits.silence_s + most_bytes / self._limits.slowest_bytes_per_s
        try:
            while piece := response.read1(min(_READ_BYTES, most_bytes + 1 - len(data))):
                data += piece
                heard()
                if len(data) > most_bytes:
                    raise PeerFailed(Fault.BROKEN, f"more than {most_bytes} bytes came")
                if self._clock() > end_s:
                    raise PeerFailed(Fault.SLOW, f"{len(data)} of {most_bytes} bytes came in time")
        except urllib3.exceptions.ReadTimeoutError as error:
            raise PeerFailed(Fault.SLOW, str(error)) from None
        except (HTTPError, OSError, ValueError) as error:
            raise PeerFailed(Fault.BROKEN, str(error)) from None


def _check_status(response: urllib3.BaseHTTPResponse) -> None:
    match response.status:
        case 200:
            return
        case 503:
            raise PeerFailed(Fault.BUSY, "it serves enough others")
        case 404:
            raise PeerFailed(Fault.GONE, "it does not have that")
        case status:
            raise PeerFailed(Fault.REFUSED, f"it answered {status}")
