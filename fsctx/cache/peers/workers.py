"""The threads that bring chunks: one for each peer that is asked, one for the origin."""

import math
from collections.abc import Callable
from random import Random

from fsctx.cache.chunks import Chunk
from fsctx.cache.origin import changed
from fsctx.cache.peers.choice import ORIGIN
from fsctx.cache.peers.client import Fault, PeerClient, PeerFailed
from fsctx.cache.peers.transit import Transit
from fsctx.errors import FsctxError, WrongBytes
from fsctx.protocol.manifest import Context

_MAP_EVERY_S = 0.5
_ORIGIN_AGAIN_S = 1.0
_TICK_S = 0.2


def ask(
    transit: Transit, agent: str, client: PeerClient, *, has_room: Callable[[float], bool], answered: Callable[[], None]
) -> None:
    """Ask a peer for as long as something is missing, unless, having been useless so long, it has to make room.

    `has_room` is told for how many seconds the peer had nothing; `answered` is called once it said anything.

    Raises:
        PeerFailed: it gave nothing, and should not be asked for a while. What it was asked for is on its way until
            the transit is told that the peer is lost.
    """
    digest, chance = transit.incoming.context.digest, Random(agent)
    useful_s, asked_s = transit.clock(), -math.inf
    while not transit.is_over and not transit.is_whole:
        now_s = transit.clock()
        if now_s - asked_s >= _MAP_EVERY_S:
            asked_s = now_s
            useful_s = now_s if transit.saw(agent, client.map(digest)) else useful_s
            answered()
        number = transit.next_of_peer(agent)
        if number is not None and _bring(transit, number, agent, client):
            continue
        if not has_room(now_s - useful_s):
            return
        transit.rest(_MAP_EVERY_S * chance.uniform(0.5, 1.5))


def _bring(transit: Transit, number: int, agent: str, client: PeerClient) -> bool:
    """Bring a chunk from a peer; False where it cannot just now."""
    try:
        data = client.chunk(transit.chunk(number), transit.hear)
        transit.put(number, agent, data)
    except WrongBytes as error:
        raise PeerFailed(Fault.WRONG, str(error)) from None
    except PeerFailed as error:
        if error.fault not in (Fault.BUSY, Fault.GONE):
            raise
        transit.failed(number, agent)
        return False
    return True


def read_origin(
    transit: Transit,
    read: Callable[[Context, Chunk], bytes],
    *,
    has_slot: Callable[[], bool],
    refused: Callable[[Exception], None],
) -> None:
    """Read the origin whenever that is allowed. `refused` is told what the filesystem says; it is tried again."""
    while not transit.is_over:
        number = transit.next_of_origin(has_slot=has_slot())
        if number is None:
            transit.wait(_TICK_S)
            continue
        try:
            data = read(transit.incoming.context, transit.chunk(number))
        except (FsctxError, OSError) as error:
            transit.failed(number, ORIGIN)
            refused(error)
            transit.wait(_ORIGIN_AGAIN_S)
            continue
        _put(transit, number, data)


def _put(transit: Transit, number: int, data: bytes) -> None:
    try:
        transit.put(number, ORIGIN, data)
    except WrongBytes:
        context = transit.incoming.context
        transit.fail(changed(context, context.files[transit.chunk(number).file]))
