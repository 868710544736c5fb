"""What a node serves, to whom, and how much of it."""

import contextlib
import dataclasses
import gc
import hashlib
import http.client
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from peering import CHUNK, SECRET, Node, make_context

from fsctx.cache import NodeCache
from fsctx.cache.chunks import Chunk, Incoming, bitmap, chunks_of
from fsctx.cache.peers.client import Fault, PeerClient, PeerFailed
from fsctx.cache.peers.server import ServerLimits
from fsctx.cache.peers.wire import KEY_HEADER
from fsctx.errors import StoreError
from fsctx.protocol.manifest import Context, ModelFile
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore

KEY = {KEY_HEADER: SECRET}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path / "origin")


@pytest.fixture
def node(tmp_path: Path, context: Context) -> Iterator[Node]:
    with Node(PosixStore(tmp_path / "run"), context, tmp_path / "cache", "a") as node:
        node.fill()
        yield node


def ask(
    record: PeerRecord, path: str, headers: dict[str, str] = KEY, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(record.address, record.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()


def bytes_of(context: Context, number: int) -> bytes:
    chunk = chunks_of(context)[number]
    data = (Path(context.origin) / context.files[chunk.file].path).read_bytes()
    return data[chunk.offset : chunk.offset + chunk.size_bytes]


def test_a_node_serves_each_chunk_that_it_has(node: Node, context: Context) -> None:
    client = PeerClient(node.serve(), SECRET)
    chunks = chunks_of(context)
    assert client.map(context.digest).held == bitmap(range(len(chunks)), len(chunks))
    for number, chunk in enumerate(chunks):
        assert client.chunk(chunk) == bytes_of(context, number)
    client.close()


def test_a_part_of_a_chunk_can_be_had(node: Node, context: Context) -> None:
    record, chunk = node.serve(), chunks_of(context)[4]
    status, headers, data = ask(record, f"/chunk/{chunk.sha256}", {**KEY, "Range": "bytes=100-299"})
    assert (status, data) == (206, bytes_of(context, 4)[100:300])
    assert headers["Content-Range"] == f"bytes 100-299/{CHUNK}"
    assert ask(record, f"/chunk/{chunk.sha256}", {**KEY, "Range": f"bytes={CHUNK}-"})[0] == 416


@pytest.mark.parametrize("headers", [{}, {KEY_HEADER: "x" * 43}, {KEY_HEADER: SECRET[:-1]}, {KEY_HEADER: "é" * 43}])
def test_who_does_not_know_the_secret_learns_nothing(node: Node, context: Context, headers: dict[str, str]) -> None:
    record = node.serve()
    for path in (f"/chunk/{chunks_of(context)[0].sha256}", f"/map/{context.digest}", "/"):
        status, _, data = ask(record, path, headers)
        assert (status, data) == (403, b"")


@pytest.mark.parametrize(
    "path",
    ["/", "/map/", "/map/../records", "/chunk/../../etc/passwd", "/chunk/" + "0" * 64, "/map/other", "//etc/passwd"],
)
def test_nothing_but_chunks_and_maps_of_this_run_is_there(node: Node, path: str) -> None:
    assert ask(node.serve(), path)[0] == 404


def test_contexts_of_other_runs_in_the_same_cache_are_not_served(node: Node, tmp_path: Path) -> None:
    other = make_context(tmp_path / "other", n_chunks=13)
    NodeCache(node.root).fetch(other)
    record = node.serve()
    assert ask(record, f"/map/{other.digest}")[0] == 404
    assert ask(record, f"/chunk/{chunks_of(other)[-1].sha256}")[0] == 404


def test_nothing_can_be_written(node: Node, context: Context) -> None:
    record = node.serve()
    for method in ("PUT", "POST", "DELETE", "HEAD"):
        assert ask(record, f"/chunk/{chunks_of(context)[0].sha256}", method=method)[0] == 405


def test_a_chunk_is_served_while_others_are_still_missing(tmp_path: Path, context: Context) -> None:
    with Node(PosixStore(tmp_path / "run"), context, tmp_path / "half", "half") as node:

        def bring_one_and_look(incoming: Incoming) -> None:
            first, second, *_ = incoming.missing()
            incoming.put(first, bytes_of(context, 0))
            with contextlib.closing(PeerClient(node.serve(), SECRET)) as client:
                assert client.map(context.digest).held == bitmap([0], len(incoming.chunks))
                assert client.chunk(first) == bytes_of(context, 0)
                with pytest.raises(PeerFailed, match=Fault.GONE):
                    client.chunk(second)
            raise StoreError("enough was seen")

        with pytest.raises(StoreError, match="enough was seen"):
            NodeCache(node.root).fetch(context, bring_one_and_look)  # type: ignore[arg-type]


@pytest.fixture
def big(tmp_path: Path, context: Context) -> Iterator[Node]:
    """A node whose only weights are one chunk, larger than what sockets hold."""
    weights = os.urandom(32 << 20)
    (Path(context.origin) / "weights").write_bytes(weights)
    file = ModelFile(path="weights", size_bytes=len(weights), chunks=(hashlib.sha256(weights).hexdigest(),))
    one = dataclasses.replace(context, files=(file,), chunk_bytes=len(weights))
    with Node(PosixStore(tmp_path / "run"), one, tmp_path / "big", "big") as node:
        node.fill()
        yield node


@contextlib.contextmanager
def one_who_takes_nothing(record: PeerRecord, chunk: Chunk) -> Iterator[socket.socket]:
    """Ask for a chunk and read its first bytes only."""
    with socket.create_connection((record.address, record.port), timeout=10) as slow:
        slow.sendall(f"GET /chunk/{chunk.sha256} HTTP/1.1\r\nHost: a\r\n{KEY_HEADER}: {SECRET}\r\n\r\n".encode())
        assert slow.recv(20).startswith(b"HTTP/1.1 200")
        yield slow


def test_who_asks_for_too_much_at_once_is_told_to_come_back(big: Node) -> None:
    record, (chunk,) = big.serve(limits=ServerLimits(uploads=1)), chunks_of(big.context)
    with one_who_takes_nothing(record, chunk):
        status, headers, _ = ask(record, f"/chunk/{chunk.sha256}")
        assert (status, headers["Retry-After"]) == (503, "1")
        with contextlib.closing(PeerClient(record, SECRET)) as client, pytest.raises(PeerFailed, match=Fault.BUSY):
            client.chunk(chunk)


def test_a_large_chunk_comes_whole_and_another_one_after_it_on_the_same_connection(big: Node) -> None:
    record, (chunk,) = big.serve(limits=ServerLimits(connections=1)), chunks_of(big.context)
    with contextlib.closing(PeerClient(record, SECRET)) as client:
        for _ in range(2):
            assert hashlib.sha256(client.chunk(chunk)).hexdigest() == chunk.sha256


def test_who_is_told_that_there_is_no_such_chunk_goes_on_asking_on_the_same_connection(node: Node) -> None:
    record, (chunk, *_) = node.serve(limits=ServerLimits(connections=1)), chunks_of(node.context)
    with contextlib.closing(PeerClient(record, SECRET)) as client:
        with pytest.raises(PeerFailed, match=Fault.GONE):
            client.chunk(dataclasses.replace(chunk, sha256="0" * 64))
        assert hashlib.sha256(client.chunk(chunk)).hexdigest() == chunk.sha256


def test_a_chunk_is_not_sent_for_ever_to_who_does_not_take_it(big: Node) -> None:
    record = big.serve(limits=ServerLimits(uploads=1, hello_s=0.2, slowest_bytes_per_s=1 << 30))
    (chunk,) = chunks_of(big.context)
    with one_who_takes_nothing(record, chunk) as slow:
        while ask(record, f"/chunk/{chunk.sha256}", {**KEY, "Range": "bytes=0-0"})[0] != 206:
            pass  # its place is free again once it was given up
        assert n_bytes_left(slow) < chunk.size_bytes


def test_there_are_never_more_connections_than_the_limit(node: Node, context: Context) -> None:
    record = node.serve(limits=ServerLimits(connections=2))
    held = [socket.create_connection((record.address, record.port), timeout=10) for _ in range(2)]
    for one in held:
        one.sendall(f"GET /map/{context.digest} HTTP/1.1\r\nHost: a\r\n{KEY_HEADER}: {SECRET}\r\n\r\n".encode())
        assert one.recv(20).startswith(b"HTTP/1.1 200")
    with socket.create_connection((record.address, record.port), timeout=10) as third:
        assert is_hung_up(third)
    for one in held:
        one.close()


def n_bytes_left(connection: socket.socket) -> int:
    """Take what was sent before the other side hung up."""
    n_bytes = 0
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 20):
            n_bytes += len(data)
    return n_bytes


def is_hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_connects_and_says_nothing_is_hung_up_on(node: Node) -> None:
    record = node.serve(limits=ServerLimits(hello_s=0.1))
    with socket.create_connection((record.address, record.port), timeout=10) as silent:
        assert is_hung_up(silent)


def test_headers_that_are_too_long_or_too_many_are_refused(node: Node, context: Context) -> None:
    record = node.serve()
    assert ask(record, f"/map/{context.digest}", {**KEY, "X-Long": "x" * 5000})[0] == 400
    assert ask(record, f"/map/{context.digest}", {**KEY, **{f"X-{n}": "1" for n in range(100)}})[0] == 400
    assert ask(record, "/map/" + "x" * 5000)[0] == 400


def test_more_requests_in_a_second_than_the_limit_wait(node: Node, context: Context) -> None:
    record = node.serve(limits=ServerLimits(requests_per_s=1))
    seen = [ask(record, f"/map/{context.digest}")[0] for _ in range(20)]
    assert set(seen) == {200, 503}


def test_a_server_that_stopped_answers_nobody(node: Node) -> None:
    record = node.serve()
    node.__exit__()
    with pytest.raises(ConnectionRefusedError):
        ask(record, "/")


def test_a_file_that_vanished_from_the_cache_is_not_there(node: Node, context: Context) -> None:
    with contextlib.closing(PeerClient(node.serve(), SECRET)) as client:
        for path in node.root.rglob("weights"):
            path.unlink()
        with pytest.raises(PeerFailed, match=Fault.GONE):
            client.chunk(chunks_of(context)[3])
        assert client.chunk(chunks_of(context)[0])


def test_a_server_that_stopped_has_closed_everything_whatever_others_were_doing(big: Node) -> None:
    unclosed: list[str] = []
    record, (chunk,) = big.serve(), chunks_of(big.context)
    with contextlib.ExitStack() as others, warnings.catch_warnings():
        for _ in range(2):
            others.enter_context(one_who_takes_nothing(record, chunk))
        for _ in range(20):  # some of them are not accepted yet when it stops
            others.enter_context(socket.create_connection((record.address, record.port), timeout=10))
        warnings.showwarning = lambda message, *_, **__: unclosed.append(str(message))
        warnings.simplefilter("always", ResourceWarning)
        big.__exit__()
        assert not any(thread.name == "peers" for thread in threading.enumerate())
        gc.collect()
    assert unclosed == []
