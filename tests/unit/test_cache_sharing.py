"""Several processes on one cache: killed, waiting, using what another wants to remove."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from contexts import CHUNK, context_of, problems

from fsctx.cache import NodeCache
from fsctx.cache.chunks import Brought, Incoming
from fsctx.cache.engines import FOLDERS, keep_on_node
from fsctx.cache.origin import from_origin
from fsctx.cache.room import parse_size, quota
from fsctx.cli.cache import cache as command
from fsctx.errors import InputError, NoSpace, StoreError
from fsctx.protocol import codec
from fsctx.protocol.manifest import Context

BEGIN = """
import os, signal, sys
from pathlib import Path
from fsctx.cache import NodeCache
from fsctx.cache.engines import keep_on_node
from fsctx.cache.origin import read_chunk
from fsctx.protocol import codec
from fsctx.protocol.manifest import Context

root, context = Path(sys.argv[1]), codec.decode(Path(sys.argv[2]).read_bytes(), Context, where="test")
node = NodeCache(root)
"""
HOLD = """
print(node.fetch(context).bytes, flush=True)
sys.stdin.read()
"""
DIE_AFTER_THREE = """
def bring(incoming):
    for chunk in incoming.missing()[:3]:
        incoming.put(chunk, read_chunk(context, chunk))
    os.kill(os.getpid(), signal.SIGKILL)

node.fetch(context, bring)
"""
Start = Callable[[str, Context], "subprocess.Popen[str]"]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path / "origin", {"config.json": b"{}", "weights": os.urandom(4500)})


@pytest.fixture
def other(tmp_path: Path) -> Context:
    return replace(context_of(tmp_path / "other", {"config.json": b"[]", "weights": os.urandom(3000)}), digest="d2")


@pytest.fixture
def node(tmp_path: Path) -> NodeCache:
    return NodeCache(tmp_path / "cache")


@contextmanager
def process(code: str, node: NodeCache, context: Context) -> Iterator["subprocess.Popen[str]"]:
    """Run code in a process of its own on the same cache."""
    record = node.root.parent / f"{context.digest}.json"
    record.write_bytes(codec.encode(context))
    arguments = [sys.executable, "-c", BEGIN + textwrap.dedent(code), str(node.root), str(record)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def first_line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_fetch_that_was_killed_goes_on_where_it_was(node: NodeCache, context: Context) -> None:
    with process(DIE_AFTER_THREE, node, context) as child:
        assert child.wait() == -signal.SIGKILL
    assert [entry.is_whole for entry in node.entries()] == [False]
    weights = Path(context.origin) / "weights"
    weights.write_bytes(bytes(2 * CHUNK) + weights.read_bytes()[2 * CHUNK :])  # what came before is not read again
    fetched = node.fetch(context)
    assert (fetched.source, fetched.bytes) == ("origin", 2500)
    assert problems(node) == {"contexts": ()}
    assert [entry.is_whole for entry in node.entries()] == [True]


def test_a_process_that_comes_while_another_fetches_waits_and_reads_nothing(node: NodeCache, context: Context) -> None:
    with process("print('begun', flush=True); " + HOLD.strip(), node, context) as child:

        def bring(incoming: Incoming) -> Brought:
            assert first_line(child) == "begun"  # it asks for the context now, and we have not fetched a byte
            return from_origin(incoming)

        assert node.fetch(context, bring).bytes == context.size_bytes
        assert first_line(child) == "0"


def test_what_a_live_process_uses_is_not_removed(node: NodeCache, context: Context) -> None:
    with process(HOLD, node, context) as child:
        assert first_line(child) == str(context.size_bytes)
        assert node.prune() == []
        assert [entry.is_pinned for entry in node.entries()] == [True]
        told = CliRunner().invoke(command, ["prune", "--all", "--cache", str(node.root)]).output
        assert "removed 0 entries, 0.00 GB; 1 in use" in told
    assert [entry.digest for entry in node.prune()] == ["d1"]  # the kernel took the dead one's pin


def test_the_longest_unused_goes_to_make_room_under_the_quota(
    node: NodeCache, context: Context, other: Context
) -> None:
    small = NodeCache(node.root, quota_bytes=5000)
    small.fetch(context)
    small.release()
    small.fetch(other)
    assert [entry.digest for entry in small.entries()] == ["d2"]
    assert small.fetch(other).source == "node"


def test_a_quota_full_of_what_others_use_is_no_room(node: NodeCache, context: Context, other: Context) -> None:
    small = NodeCache(node.root, quota_bytes=5000)
    with process(HOLD, node, context) as child:
        first_line(child)
        with pytest.raises(NoSpace, match="in use: pass a larger --cache-quota"):
            small.fetch(other)
        assert [entry.digest for entry in small.entries()] == ["d1"]
    assert small.fetch(other).source == "origin"


def test_where_there_is_no_room_in_any_case_nothing_is_removed(
    node: NodeCache, context: Context, other: Context, tmp_path: Path
) -> None:
    NodeCache(node.root).fetch(context)
    tiny = replace(context_of(tmp_path / "tiny", {"weights": b"tiny"}), digest="d3")
    node.fetch(tiny)
    node.release()
    with pytest.raises(NoSpace, match="in use"):
        NodeCache(node.root, quota_bytes=5000).fetch(other)
    assert {entry.digest for entry in node.entries()} == {"d1", "d3"}


def test_what_another_is_fetching_counts_in_full_from_its_first_byte(
    node: NodeCache, context: Context, other: Context
) -> None:
    def bring(incoming: Incoming) -> Brought:
        with pytest.raises(NoSpace, match="quota"):
            NodeCache(node.root, quota_bytes=5000).fetch(other)
        return from_origin(incoming)

    assert NodeCache(node.root, quota_bytes=5000).fetch(context, bring).source == "origin"


def test_a_quota_smaller_than_the_context_is_said_before_a_byte_is_read(node: NodeCache, context: Context) -> None:
    def never(_: Incoming) -> Brought:
        raise AssertionError("fetched all the same")

    with pytest.raises(InputError, match="--cache-quota"):
        NodeCache(node.root, quota_bytes=4501).fetch(context, never)
    assert not node.root.exists()


def test_a_conversion_counts_under_the_quota(node: NodeCache, tmp_path: Path) -> None:
    gguf = context_of(tmp_path / "gguf", {"model.gguf": b"GGUF"}, kind="gguf")
    small = NodeCache(node.root, quota_bytes=1000)

    def convert(_: Path, target: Path) -> None:
        target.mkdir()
        (target / "weights").write_bytes(bytes(2000))

    with pytest.raises(NoSpace, match="quota"):
        small.converted(gguf, convert)
    assert [entry.kind for entry in small.entries()] == ["contexts"]


def test_what_was_half_fetched_is_kept_when_the_source_fails(node: NodeCache, context: Context) -> None:
    def fails(incoming: Incoming) -> Brought:
        incoming.put(incoming.chunks[0], b"{}")
        raise StoreError("the origin does not answer")

    with pytest.raises(StoreError, match="answer"):
        node.fetch(context, fails)
    assert node.fetch(context).bytes == 4500


def test_a_disk_that_fills_up_meanwhile_gets_its_room_back(node: NodeCache, context: Context) -> None:
    def fills(incoming: Incoming) -> Brought:
        incoming.put(incoming.chunks[0], b"{}")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NoSpace, match="is full"):
        node.fetch(context, fills)
    assert node.entries() == []


def test_a_source_that_brings_less_than_it_says_makes_nothing_whole(node: NodeCache, context: Context) -> None:
    with pytest.raises(StoreError, match="6 chunks of model were not brought"):
        node.fetch(context, lambda _: Brought(bytes_by_source={}))
    assert [entry.is_whole for entry in node.entries()] == [False]


def test_a_file_of_another_user_is_never_used(node: NodeCache, context: Context) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    os.chown(node.fetch(context).path / "weights", 12345, 12345)
    with pytest.raises(InputError, match="weights belongs to user 12345"):
        node.fetch(context)


@pytest.mark.parametrize("name", ["contexts", "incoming", "pins"])
def test_a_folder_of_another_user_within_the_cache_is_never_used(node: NodeCache, context: Context, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    node.root.mkdir(mode=0o700)
    (node.root / name).mkdir()
    os.chown(node.root / name, 12345, 12345)
    with pytest.raises(InputError, match="belongs to user 12345"):
        node.fetch(context)


def test_a_symlink_in_the_place_of_a_file_is_fetched_again_and_not_followed(node: NodeCache, context: Context) -> None:
    path = node.fetch(context).path / "weights"
    mine = node.root.parent / "mine"
    mine.write_bytes(bytes(4500))
    path.unlink()
    path.symlink_to(mine)
    assert node.fetch(context).bytes == context.size_bytes
    assert mine.read_bytes() == bytes(4500)
    assert not path.is_symlink()


@pytest.mark.parametrize(("text", "size"), [("500", 500), ("20GB", 20 * 10**9), ("1.5 TiB", 3 * 2**39), ("7k", 7000)])
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert quota({"FSCTX_CACHE_QUOTA": text}) == size
    assert quota({"FSCTX_CACHE_QUOTA": "1"}, text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1XB", "GB", "i", "5i"])
def test_a_size_that_is_none_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError, match="20GB"):
        parse_size(text)


def test_engines_of_two_processes_keep_their_caches_apart_and_the_next_one_finds_the_first_ones(
    node: NodeCache, context: Context
) -> None:
    code = "keep_on_node(os.environ, root); print(os.environ['TRITON_CACHE_DIR'], flush=True); sys.stdin.read()"
    with process(code, node, context) as one, process(code, node, context) as two:
        first, second = first_line(one), first_line(two)
        assert first != second
        assert Path(first).is_dir()
    with process(code, node, context) as three:
        assert first_line(three) in (first, second)


def test_where_the_user_keeps_an_engines_cache_it_stays(node: NodeCache) -> None:
    environ = {"HF_HOME": "/mine", "TRITON_CACHE_DIR": ""}
    keep_on_node(environ, node.root)
    assert environ.pop("HF_HOME") == "/mine"
    assert set(environ) == set(FOLDERS) - {"HF_HOME"}
    assert all(Path(folder).is_relative_to(node.root) for folder in environ.values())
