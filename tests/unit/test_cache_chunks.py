"""Chunks: taking them in, resuming, and serving them."""

import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from contexts import CHUNK, context_of

from fsctx.cache import NodeCache
from fsctx.cache.chunks import Brought, Incoming, Shelf, chunks_of, numbers_in
from fsctx.cache.hashing import describe
from fsctx.cache.origin import read_chunk
from fsctx.errors import Damaged, StoreError, WrongBytes
from fsctx.protocol.manifest import Context, ModelFile


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path / "origin", {"a": os.urandom(2500), "sub/b": os.urandom(1000), "empty": b""})


def whole(incoming: Incoming, folder: Path) -> bool:
    origin = Path(incoming.context.origin)
    return all(
        (folder / "files" / f.path).read_bytes() == (origin / f.path).read_bytes() for f in incoming.context.files
    )


def test_the_chunks_of_a_context_are_its_bytes_in_order(context: Context) -> None:
    chunks = chunks_of(context)
    assert [(c.file, c.offset, c.size_bytes) for c in chunks] == [
        (0, 0, 1000),
        (0, 1000, 1000),
        (0, 2000, 500),
        (1, 0, 1000),
    ]
    for chunk in chunks:
        assert hashlib.sha256(read_chunk(context, chunk)).hexdigest() == chunk.sha256


@pytest.mark.parametrize(
    ("size_bytes", "n_chunks", "step"), [(1001, 1, 1000), (10, 2, 1000), (10, 1, 0), (-1, 0, 1000)]
)
def test_a_record_that_contradicts_itself_is_damage(size_bytes: int, n_chunks: int, step: int) -> None:
    file = ModelFile(path="a", size_bytes=size_bytes, chunks=("0" * 64,) * n_chunks)
    bad = Context(digest="d1", kind="hf", name="m", origin="/", files=(file,), chunk_bytes=step)
    with pytest.raises(Damaged, match="contradict"):
        chunks_of(bad)


def test_chunks_may_come_in_any_order_and_from_many_threads(context: Context, tmp_path: Path) -> None:
    incoming = Incoming(context, tmp_path / "new")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda c: incoming.put(c, read_chunk(context, c)), [*reversed(incoming.chunks)] * 3))
    assert incoming.missing() == []
    assert whole(incoming, tmp_path / "new")


@pytest.mark.parametrize("data", [b"", b"short", bytes(CHUNK), bytes(CHUNK + 1)])
def test_wrong_bytes_are_refused_and_change_nothing(context: Context, tmp_path: Path, data: bytes) -> None:
    incoming = Incoming(context, tmp_path / "new")
    chunk = incoming.chunks[0]
    incoming.put(chunk, read_chunk(context, chunk))
    with pytest.raises(WrongBytes):
        incoming.put(chunk, data)
    assert incoming.holds(chunk.sha256)
    assert (tmp_path / "new/files/a").read_bytes()[:CHUNK] == read_chunk(context, chunk)


def test_a_chunk_that_comes_after_the_end_is_written_nowhere(context: Context, tmp_path: Path) -> None:
    incoming = Incoming(context, tmp_path / "new")
    incoming.close()
    with open(tmp_path / "mine", "w+b") as mine:  # it gets a descriptor that was the fetch's
        with pytest.raises(StoreError, match="ended"):
            incoming.put(incoming.chunks[0], read_chunk(context, incoming.chunks[0]))
        assert mine.read() == b""


def test_what_was_taken_in_is_there_when_the_fetch_is_resumed(context: Context, tmp_path: Path) -> None:
    first = Incoming(context, tmp_path / "new")
    for chunk in first.chunks[1:3]:
        first.put(chunk, read_chunk(context, chunk))
    first.close()
    assert Incoming(context, tmp_path / "new").missing() == [first.chunks[0], first.chunks[3]]


def test_a_chunk_whose_bytes_were_lost_is_missing_again_though_the_journal_has_it(
    context: Context, tmp_path: Path
) -> None:
    first = Incoming(context, tmp_path / "new")
    for chunk in first.chunks:
        first.put(chunk, read_chunk(context, chunk))
    first.close()
    os.truncate(tmp_path / "new/files/a", 1500)
    assert Incoming(context, tmp_path / "new").missing() == list(first.chunks[1:3])


@pytest.mark.parametrize("journal", [b"0\n1", b"0\n99\n", b"0\n-1\nx\n\n\xff\n"])
def test_a_journal_with_a_torn_or_senseless_line_is_read_as_far_as_it_goes(
    context: Context, tmp_path: Path, journal: bytes
) -> None:
    first = Incoming(context, tmp_path / "new")
    for chunk in first.chunks:
        first.put(chunk, read_chunk(context, chunk))
    first.close()
    (tmp_path / "new/journal").write_bytes(journal)
    assert Incoming(context, tmp_path / "new").missing() == list(first.chunks[1:])


def test_a_symlink_in_the_place_of_a_file_is_not_written_through(context: Context, tmp_path: Path) -> None:
    (tmp_path / "new/files").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "new/files/a").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="a"):
        Incoming(context, tmp_path / "new")
    assert (tmp_path / "outside").read_bytes() == b"mine"


def test_a_disk_without_room_says_so_before_anything_is_fetched(small_disk: Path, tmp_path: Path) -> None:
    big = context_of(tmp_path / "origin", {"weights": bytes(9 << 20)})
    with pytest.raises(OSError, match="No space") as raised:
        Incoming(big, small_disk / "new")
    assert raised.value.errno == errno.ENOSPC


def test_a_node_serves_the_chunks_that_it_has_while_others_are_on_their_way(context: Context, tmp_path: Path) -> None:
    node, shelf = NodeCache(tmp_path / "cache"), Shelf(tmp_path / "cache", [context])
    seen: list[set[int]] = []

    def bring(incoming: Incoming) -> Brought:
        for chunk in [*incoming.missing()]:
            seen.append(numbers_in(shelf.held(context.digest), 4))
            assert shelf.place(chunk.sha256) is None
            incoming.put(chunk, read_chunk(context, chunk))
            place = shelf.place(chunk.sha256)
            assert place is not None
            with open(place.path, "rb") as served:
                served.seek(place.offset)
                assert hashlib.sha256(served.read(place.size_bytes)).hexdigest() == chunk.sha256
        return Brought(bytes_by_source={"peer": context.size_bytes})

    assert node.fetch(context, bring).source == "peer"
    assert seen == [set(), {0}, {0, 1}, {0, 1, 2}]
    assert numbers_in(shelf.held(context.digest), 4) == {0, 1, 2, 3}
    place = shelf.place(chunks_of(context)[3].sha256)
    assert place is not None
    assert place.path == node.fetch(context).path / "sub/b"


def test_a_node_serves_no_chunk_of_other_contexts(context: Context, tmp_path: Path) -> None:
    node = NodeCache(tmp_path / "cache")
    other = replace(context_of(tmp_path / "other", {"x": b"secret"}), digest="d2")
    node.fetch(context)
    node.fetch(other)
    assert Shelf(node.root, [context]).place(other.files[0].chunks[0]) is None


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 4000, 9 << 20])
def test_hashes_by_several_threads_are_those_of_the_chunks_in_order(tmp_path: Path, size: int) -> None:
    step = 1000 if size < 5000 else 5 << 20
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(b"b")
    done: list[int] = []
    first, second = describe(tmp_path, ["a", "b"], step, progress=done.append)
    assert first.chunks == tuple(hashlib.sha256(content[at : at + step]).hexdigest() for at in range(0, size, step))
    assert (first.size_bytes, second.size_bytes, done[-1]) == (size, 1, size + 1)
    assert first.mtime_ns == (tmp_path / "a").stat().st_mtime_ns


def test_a_file_that_grows_while_it_is_read_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))

    def grow(_: int) -> None:
        (tmp_path / "a").write_bytes(bytes(2000))

    with pytest.raises(OSError, match="changed while"):
        describe(tmp_path, ["a"], 1000, progress=grow)
