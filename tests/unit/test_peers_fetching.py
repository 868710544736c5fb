"""How a node fetches from its peers: what they may do to it, and that it never waits for them without an end."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peering import CHUNK, FreeSlots, Node, announce, make_context

from fsctx.cache import NodeCache
from fsctx.cache.chunks import Brought, Chunk, Incoming, bitmap, chunks_of
from fsctx.cache.peers.client import ClientLimits
from fsctx.cache.peers.fetch import Fetch
from fsctx.cache.peers.transit import Patience
from fsctx.cache.peers.wire import ChunkMap, encode_map
from fsctx.errors import Damaged, StoreError
from fsctx.protocol.manifest import Context
from fsctx.store import PosixStore

Reply = Callable[[socket.socket, str], None]
"""Answers one request for a path on a connection."""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path / "origin")


@pytest.fixture
def store(tmp_path: Path) -> PosixStore:
    return PosixStore(tmp_path / "run")


@pytest.fixture
def node(tmp_path: Path, store: PosixStore, context: Context) -> Iterator[Node]:
    """One that wants the context, and may read the origin."""
    with Node(store, context, tmp_path / "mine", "mine") as node:
        yield node


@pytest.fixture
def honest(tmp_path: Path, store: PosixStore, context: Context) -> Iterator[Node]:
    """One that has the context; it serves when it is told to."""
    with Node(store, context, tmp_path / "honest", "honest") as node:
        node.fill()
        yield node


def is_whole(node: Node) -> bool:
    return NodeCache(node.root).fetch(node.context).source == "node" and all(
        not finding.problems for finding in NodeCache(node.root).verify()
    )


@contextlib.contextmanager
def misbehaving(
    store: PosixStore, reply: Reply, name: str = "liar", family: int = socket.AF_INET
) -> Iterator[list[str]]:
    """A real server that does to each connection what `reply` does; yields the paths that were asked for."""
    asked: list[str] = []
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            while first := lines.readline():
                while lines.readline().strip():
                    pass
                path = first.split()[1].decode()
                asked.append(path)
                reply(connection, path)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()

    with socket.create_server((address, 0), family=family) as door:
        threading.Thread(target=accept, daemon=True).start()
        announce(store, name, door.getsockname()[1], address=address)
        yield asked
        door.shutdown(socket.SHUT_RDWR)


def answer(
    connection: socket.socket, body: bytes, *, status: str = "200 OK", size: int | None = None, more: str = ""
) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if size is None else size}\r\n{more}\r\n"
    connection.sendall(head.encode() + body)


def whole_map(n_chunks: int = 13) -> bytes:
    return encode_map(ChunkMap(held=bitmap(range(n_chunks), n_chunks)))


def to_chunks(reply: Reply) -> Reply:
    """Say truly which chunks there are, and misbehave where one is asked for."""

    def both(connection: socket.socket, path: str) -> None:
        if path.startswith("/map"):
            answer(connection, whole_map())
        else:
            reply(connection, path)

    return both


def stall(connection: socket.socket, path: str) -> None:
    connection.recv(1)  # until the other side has enough


def trickle(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    connection.settimeout(0.02)
    while True:
        connection.sendall(b"x")
        with contextlib.suppress(TimeoutError):
            if connection.recv(1) == b"":
                return


def hang_up(connection: socket.socket, path: str) -> None:
    connection.shutdown(socket.SHUT_RDWR)


MISDEEDS: dict[str, Reply] = {
    "garbage": to_chunks(lambda c, _: answer(c, b"x" * CHUNK)),
    "a chunk that is too short": to_chunks(lambda c, _: answer(c, b"x" * 10)),
    "a chunk that is too long": to_chunks(lambda c, _: answer(c, b"x" * (CHUNK + 1))),
    "a size that is a lie": to_chunks(lambda c, _: answer(c, b"x" * 10, size=1 << 60)),
    "half a chunk": to_chunks(lambda c, p: (answer(c, b"x" * 10, size=CHUNK), hang_up(c, p))[0]),
    "a redirect": to_chunks(lambda c, _: answer(c, b"", status="302 Found", more="Location: /other\r\n")),
    "nothing": to_chunks(stall),
    "a byte now and then": to_chunks(trickle),
    "no HTTP": lambda c, _: c.sendall(b"SSH-2.0-OpenSSH\r\n" * 9),
    "the end": hang_up,
    "silence": stall,
    "a map that is none": lambda c, _: answer(c, b"{]"),
    "a map that is endless": lambda c, _: answer(c, b" " * (2 << 20)),
    "an empty map": lambda c, _: answer(c, encode_map(ChunkMap(held=b""))),
    "a map with too much in it": lambda c, _: answer(c, encode_map(ChunkMap(held=b"\xff" * 999))),
    "an error": lambda c, _: answer(c, b"", status="500 Oops"),
    "a secret of another run": lambda c, _: answer(c, b"", status="403 Forbidden"),
    "endless headers": lambda c, _: c.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1000),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_whatever_a_peer_does_the_context_comes_from_another(
    node: Node, honest: Node, store: PosixStore, misdeed: str
) -> None:
    node.slots, node.client_limits = FreeSlots(0), ClientLimits(silence_s=1.5, slowest_bytes_per_s=30_000)
    with misbehaving(store, MISDEEDS[misdeed]):
        honest.serve()
        assert node.fetch() == {"peer": node.context.size_bytes} or misdeed in ("garbage", "a chunk that is too long")
    assert is_whole(node)
    assert node.read == []


@pytest.mark.parametrize("misdeed", ["nothing", "a byte now and then", "silence", "an empty map", "garbage"])
def test_whatever_the_only_peer_does_the_origin_is_read(node: Node, store: PosixStore, misdeed: str) -> None:
    node.slots, node.patience = FreeSlots(0), Patience(silence_s=0.2, longest_s=0.5, bytes_per_s=1e9)
    with misbehaving(store, MISDEEDS[misdeed]):
        assert node.fetch()["origin"] == node.context.size_bytes
    assert is_whole(node)


def test_a_peer_that_sent_a_wrong_chunk_is_reported_and_not_asked_again(
    tmp_path: Path, node: Node, store: PosixStore
) -> None:
    sources = dataclasses.replace(node.sources())
    lie = to_chunks(lambda connection, path: answer(connection, bytes(len(asked_for(node.context, path)))))
    with misbehaving(store, lie) as asked, Node(store, node.context, tmp_path / "part", "part") as part:
        part.keep(range(12))  # so that something is asked of the other one, however slow it is
        part.serve()
        node.fetch_with(sources)
        assert [(kind, fields["peer"]) for kind, fields in node.events] == [("peer_dropped", "liar")]
        n_asked = len(asked)
        assert sources.neighbours.find(9, known=[]) != []
        assert "liar" not in {record.agent for record in sources.neighbours.find(9, known=[])}
        assert len(asked) == n_asked
    assert is_whole(node)


def test_a_peer_whose_wrong_chunk_is_the_last_that_is_missing_is_reported_too(node: Node, store: PosixStore) -> None:
    """The thread that reports does not wake before the other peer brought that chunk too."""
    asked, asleep = threading.Event(), threading.Event()

    def lie(connection: socket.socket, path: str) -> None:
        asked.set()
        asleep.wait()
        answer(connection, bytes(len(asked_for(node.context, path))))

    def give(connection: socket.socket, path: str) -> None:
        asked.wait()
        answer(connection, asked_for(node.context, path))

    def bring(incoming: Incoming) -> Brought:
        def sleep() -> None:
            while asked.is_set() and incoming.missing():
                asleep.set()
                threading.Event().wait(0.01)

        return Fetch(incoming, dataclasses.replace(node.sources(), tend=sleep)).run()

    with misbehaving(store, to_chunks(lie)), misbehaving(store, to_chunks(give), name="honest"):
        NodeCache(node.root).fetch(node.context, bring)
    assert [(kind, fields["peer"]) for kind, fields in node.events] == [("peer_dropped", "liar")]


def test_only_wrong_bytes_are_held_against_a_peer(node: Node, honest: Node, store: PosixStore) -> None:
    with misbehaving(store, MISDEEDS["half a chunk"]):
        honest.serve()
        node.fetch()
    assert node.events == []


def test_a_peer_with_another_runs_secret_gives_nothing(node: Node, honest: Node) -> None:
    honest.serve(secret="o" * 43)
    assert node.fetch() == {"origin": node.context.size_bytes}


def test_chunks_come_from_several_peers_at_once(tmp_path: Path, node: Node, store: PosixStore) -> None:
    """Each of two peers has half of the chunks: none could serve it alone."""
    with contextlib.ExitStack() as stack:
        node.slots = FreeSlots(0)
        for half in (0, 1):
            other = stack.enter_context(Node(store, node.context, tmp_path / f"half{half}", f"half{half}"))
            other.keep(number for number in range(13) if number % 2 == half)
            other.serve()
        assert node.fetch() == {"peer": node.context.size_bytes}
    assert is_whole(node)


def test_what_no_peer_has_is_read_from_the_origin_and_nothing_else(
    tmp_path: Path, node: Node, store: PosixStore
) -> None:
    with Node(store, node.context, tmp_path / "part", "part") as other:
        other.keep(range(10))
        other.serve()
        node.fetch()
    chunks = chunks_of(node.context)
    assert set(node.read) == set(chunks[10:])
    assert is_whole(node)


def test_what_another_reads_from_the_origin_is_waited_for(node: Node, store: PosixStore) -> None:
    looks = []

    def reply(connection: socket.socket, path: str) -> None:
        """Read all of it from the origin at first, and have it soon after."""
        if path.startswith("/map"):
            looks.append(path)
            all_of_it = bitmap(range(13), 13)
            answer(connection, encode_map(ChunkMap(held=b"", coming=all_of_it)) if len(looks) < 4 else whole_map())
        else:
            answer(connection, asked_for(node.context, path))

    with misbehaving(store, reply):
        assert node.fetch() == {"peer": node.context.size_bytes}


def asked_for(context: Context, path: str) -> bytes:
    return bytes_of(context, next(one for one in chunks_of(context) if path.endswith(one.sha256)))


def bytes_of(context: Context, chunk: Chunk) -> bytes:
    data = (Path(context.origin) / context.files[chunk.file].path).read_bytes()
    return data[chunk.offset : chunk.offset + chunk.size_bytes]


def test_alone_and_without_a_slot_a_node_reads_the_origin_in_the_end(node: Node) -> None:
    node.slots, node.patience = FreeSlots(0), Patience(silence_s=0.2)
    assert node.fetch() == {"origin": node.context.size_bytes}


def test_a_slot_is_given_back(node: Node) -> None:
    node.fetch()
    assert not node.slots.is_held


def test_a_node_that_is_gone_is_only_a_source_that_fails(node: Node, store: PosixStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    announce(store, "gone", port)
    assert node.fetch() == {"origin": node.context.size_bytes}


def test_a_firewall_that_drops_packets_costs_one_time_to_connect(node: Node, store: PosixStore) -> None:
    node.client_limits = ClientLimits(connect_s=0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door, contextlib.ExitStack() as stack:
        for _ in range(3):  # the queue is full: further packets are dropped
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(door.getsockname())
        announce(store, "walled", door.getsockname()[1])
        sources = node.sources()
        assert node.fetch_with(sources) == {"origin": node.context.size_bytes}
        assert sources.neighbours.find(9, known=[]) == []  # put off


def test_proxies_of_the_environment_are_not_asked(node: Node, honest: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    honest.serve()
    node.slots = FreeSlots(0)
    assert node.fetch() == {"peer": node.context.size_bytes}


def test_nodes_that_have_ipv6_alone_reach_each_other(node: Node, honest: Node) -> None:
    try:
        honest.serve(address="::1")
    except OSError:
        pytest.skip("no IPv6 on this machine")
    node.slots = FreeSlots(0)
    assert node.fetch() == {"peer": node.context.size_bytes}


def test_agents_that_share_a_cache_ask_each_other_for_nothing(node: Node, store: PosixStore) -> None:
    with misbehaving(store, stall, name="roommate") as asked:
        announce(store, "roommate", 1, cache=node.record.cache)
        node.fetch()
        assert asked == []


def test_an_origin_that_changed_is_refused(node: Node) -> None:
    weights = Path(node.context.origin) / "weights"
    weights.write_bytes(b"y" * weights.stat().st_size)
    with pytest.raises(Damaged, match="weights changed since it was recorded"):
        node.fetch()


def test_an_origin_that_cannot_be_read_does_not_matter_while_peers_bring_all(node: Node, honest: Node) -> None:
    honest.serve()
    node.origin = refuse
    assert node.fetch() == {"peer": node.context.size_bytes}


def test_without_peers_the_origins_error_is_the_end(node: Node) -> None:
    node.origin, node.patience = refuse, Patience(silence_s=0.1)
    with pytest.raises(StoreError, match="input/output error"):
        node.fetch()


def refuse(context: Context, chunk: Chunk) -> bytes:
    raise StoreError("weights: input/output error")


def test_a_fetch_that_broke_off_goes_on_where_it_was(tmp_path: Path, node: Node, store: PosixStore) -> None:
    n_read = 0

    def read(context: Context, chunk: Chunk) -> bytes:
        nonlocal n_read
        n_read += 1
        if n_read == 6:
            raise StoreError("the mount went away")
        return bytes_of(context, chunk)

    node.origin, node.patience = read, Patience(silence_s=0.1)
    with pytest.raises(StoreError, match="went away"):
        node.fetch()
    n_before = n_read
    node.fetch()
    assert n_read - n_before == 13 - 5
