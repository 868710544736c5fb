"""What peers say to each other over HTTP.

    GET /map/<digest>      which of a context's chunks are here, and which are read from the origin now: a `ChunkMap`
    GET /chunk/<sha256>    a chunk's bytes, or with a Range header a part of them

Each request carries the run's secret; 403 says that it is another one's, 503 that enough others are served right now.
"""

from dataclasses import dataclass

import msgspec

from fsctx.errors import Damaged

KEY_HEADER = "X-Fsctx-Secret"
MAP, CHUNK = "map", "chunk"

MAX_MAP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkMap:
    """Two bitmaps of a context's chunks."""

    held: bytes
    coming: bytes = b""
    """What this node reads from the origin just now: others need not."""


def encode_map(chunk_map: ChunkMap) -> bytes:
    """Return a map's bytes."""
    return msgspec.json.encode(chunk_map)


def decode_map(data: bytes) -> ChunkMap:
    """Read a map.

    Raises:
        Damaged: it is none.
    """
    try:
        return msgspec.json.decode(data, type=ChunkMap)
    except msgspec.MsgspecError as error:
        raise Damaged(f"a peer's map cannot be read ({error})") from None
