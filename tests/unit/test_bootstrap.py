"""The bootstrap: one file for any Python, which trusts nothing that it reads, and shares the node's cache."""

import ast
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from environments import (
    BASE,
    CHUNK,
    bootstrap,
    bootstrap_module,
    environment,
    make_archive,
    register,
    told,
)

from fsctx.cache import NodeCache, default_root
from fsctx.cache.chunks import Shelf
from fsctx.cache.layout import Layout
from fsctx.cache.peers.server import PeerServer, ServerLimits
from fsctx.cache.peers.wire import KEY_HEADER
from fsctx.coordinator.submit.bootstrap import bootstrap_file, pilot_command
from fsctx.protocol import codec, names, peers
from fsctx.protocol.names import SlotId
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore

MAX_FUNCTION_LINES = 50
SECRET = "s" * 43


class Node:
    """A run with one tiny environment, and a node."""

    def __init__(self, folder: Path) -> None:
        self.run, self.cache, self.origin = folder / "run", folder / "cache", folder / "origin"
        self.origin.mkdir(parents=True)
        self.archive = make_archive(self.origin / "env.tar.gz")
        self.context = register(self.run, self.archive)
        self.layout = Layout(self.cache)

    @property
    def digest(self) -> str:
        return self.context.digest

    def start(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return bootstrap(self.run, self.digest, "--cache", str(self.cache), *options)

    def refusal(self, *options: str) -> tuple[int, str]:
        done = self.start(*options)
        assert done.stderr.count("\n") == 1, done.stderr
        return done.returncode, done.stderr


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_is_one_file_of_the_standard_library_in_the_words_of_python_3_8() -> None:
    tree = ast.parse(bootstrap_file().read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {alias.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported <= sys.stdlib_module_names
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]


def test_what_it_spells_itself_is_what_the_rest_of_fsctx_spells(node: Node, tmp_path: Path) -> None:
    module = bootstrap_module()
    record, raw = module.read_record(str(node.run), node.digest)
    assert raw == node.run.joinpath(names.context(node.digest)).read_bytes()
    cache = module.Cache(str(node.cache), record, node.digest)
    layout, digest = node.layout, node.digest
    assert cache.environment == str(layout.folder("environments", digest))
    assert cache.archive == str(layout.folder("contexts", digest) / "env.tar.gz")
    assert cache._incoming == str(layout.incoming("contexts", digest))
    assert cache._making == str(layout.incoming("environments", digest))
    assert cache._ready == str(layout.record("environments", digest))
    assert cache._archive_record == str(layout.record("contexts", digest))
    assert (cache._lock, cache._pin) == (str(layout.lock(digest)), str(layout.pin("environments", digest)))
    peer = module.Peers(str(node.run), digest)
    assert os.path.relpath(peer._folder, node.run) == names.PEERS
    assert KEY_HEADER in bootstrap_file().read_text()
    slot = module.Slot(str(node.run / names.SLOTS), 0).path(1, 3)
    assert os.path.relpath(slot, node.run) == names.slot(SlotId("environment", 1, 3))
    scratch = {"_CONDOR_SCRATCH_DIR": "/scratch/1", "TMPDIR": "/scratch/2"}
    for environ, asked in (({}, None), (scratch, None), ({"FSCTX_CACHE": "~/c"}, None), (scratch, "some/where")):
        assert module.cache_root(environ, asked) == str(default_root(environ, Path(asked) if asked else None))


def test_the_agent_gets_its_options_and_the_cache_and_signals_reach_it(node: Node) -> None:
    seen = told(node.start("--engine", "fake:rows_per_s=1", "--no-peers", "--max-units=2"))
    assert seen["arguments"] == ["agent", str(node.run), "--engine", "fake:rows_per_s=1", "--max-units=2", "--no-peers"]
    assert seen["cache"] == str(node.cache)
    command = pilot_command(node.run, node.digest, python=BASE, options=("--cache", str(node.cache)))
    process = subprocess.Popen(command, env={}, stdout=subprocess.PIPE, text=True)
    assert f'"pid": {process.pid}' in process.communicate()[0]


def test_the_second_start_fetches_and_unpacks_nothing(node: Node) -> None:
    assert "MB from the shared filesystem" in node.start().stderr
    node.archive.unlink()
    again = node.start()
    assert told(again)
    assert again.stderr == ""


def test_two_pilots_of_a_node_unpack_once(node: Node) -> None:
    command = pilot_command(node.run, node.digest, python=BASE, options=("--cache", str(node.cache)))
    pipe = subprocess.PIPE
    pilots = [subprocess.Popen(command, env={}, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    ended = [pilot.communicate() for pilot in pilots]
    assert [pilot.returncode for pilot in pilots] == [0, 0, 0]
    assert sum("unpacked" in said for _, said in ended) == 1


def test_a_fetch_that_died_is_gone_on_with(node: Node) -> None:
    module = bootstrap_module()
    record, raw = module.read_record(str(node.run), node.digest)
    cache = module.Cache(str(node.cache), record, node.digest)
    cache.prepare()
    n_chunks = len(record["files"][0]["chunks"])
    origin, asked = module.Origin(record), []

    class DiesAt(module.Origin):  # type: ignore[misc,name-defined]
        def get(self, sha256: str, offset: int, size: int) -> Any:
            asked.append(offset // CHUNK)
            if offset // CHUNK == n_chunks - 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().get(sha256, offset, size)

    child = os.fork()
    if child == 0:
        cache._fetch(raw, [DiesAt(record)])
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sum(cache._fetch(raw, [origin]).values()) == sum(size for *_, size in list(cache._chunks())[-3:])
    assert Path(cache.archive).read_bytes() == node.archive.read_bytes()


def test_a_node_that_was_killed_while_unpacking_unpacks_again_what_it_fetched(node: Node) -> None:
    module = bootstrap_module()
    record, raw = module.read_record(str(node.run), node.digest)
    cache = module.Cache(str(node.cache), record, node.digest)
    cache.prepare()
    child = os.fork()
    if child == 0:
        extract, n_left = tarfile.TarFile.extract, iter(range(2))

        def dies_at_the_third(*arguments: Any) -> None:
            if next(n_left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            extract(*arguments)

        tarfile.TarFile.extract = dies_at_the_third  # type: ignore[method-assign,assignment]
        cache.make(raw, BASE, [module.Origin(record)])
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not cache.is_ready()
    assert not Path(cache.environment).exists()
    node.archive.unlink()
    done = node.start()
    assert told(done)
    assert "archive was here" in done.stderr
    assert not Path(cache._making).exists()


def test_the_rest_of_fsctx_finds_the_archive_and_the_environment_in_the_cache(node: Node) -> None:
    assert told(node.start())
    cache = NodeCache(node.cache)
    assert cache.fetch(node.context).source == "node"
    assert {entry.kind for entry in cache.entries()} == {"contexts", "environments"}
    assert not [finding for finding in cache.verify() if finding.problems]


def test_an_archive_that_an_agent_began_to_fetch_is_finished(node: Node) -> None:
    def bring_half(incoming: Any) -> Any:
        content = node.archive.read_bytes()
        for chunk in incoming.missing()[::2]:
            incoming.put(chunk, content[chunk.offset : chunk.offset + chunk.size_bytes])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NodeCache(node.cache).fetch(node.context, bring_half)
    assert told(node.start())
    assert not list((node.cache / "incoming").iterdir())


def test_a_running_agent_keeps_its_environment_from_being_removed(node: Node, tmp_path: Path) -> None:
    assert told(node.start())
    package = next(node.layout.folder("environments", node.digest).glob("lib/*/site-packages/fsctx"))
    (package / "__main__.py").write_text("print('up', flush=True); input()")
    command = pilot_command(node.run, node.digest, python=BASE, options=("--cache", str(node.cache)))
    with subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pilot:
        assert pilot.stdout is not None
        assert pilot.stdout.readline() == "up\n"
        assert [entry.kind for entry in NodeCache(node.cache).prune()] == ["contexts"]
        pilot.communicate("\n")
    assert [entry.kind for entry in NodeCache(node.cache).prune()] == ["environments"]


def test_who_waits_for_a_lock_whose_file_was_removed_takes_the_new_one(node: Node) -> None:
    module = bootstrap_module()
    record, _ = module.read_record(str(node.run), node.digest)
    cache = module.Cache(str(node.cache), record, node.digest)
    cache.prepare()
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        real(fd, how)
        module.fcntl = fcntl
        os.unlink(cache._lock)

    module.fcntl = type("Stub", (), {"flock": staticmethod(flock), "LOCK_EX": fcntl.LOCK_EX})
    with cache.locked(), open(cache._lock) as other, pytest.raises(BlockingIOError):
        real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_files_that_were_swept_away_are_unpacked_again(node: Node) -> None:
    assert told(node.start())
    package = next(node.layout.folder("environments", node.digest).glob("lib/*/site-packages/fsctx"))
    (package / "__init__.py").unlink()
    again = node.start()
    assert told(again)
    assert "archive was here" in again.stderr


def test_an_archive_that_went_bad_on_the_node_is_fetched_again(node: Node) -> None:
    assert told(node.start())
    copy = node.layout.folder("contexts", node.digest) / "env.tar.gz"
    copy.chmod(0o600)
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    next(node.layout.folder("environments", node.digest).glob("lib/*/site-packages/fsctx/__init__.py")).unlink()
    again = node.start()
    assert told(again)
    assert "from the shared filesystem" in again.stderr


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "members",
    [
        [tarfile.TarInfo("../evil")],
        [tarfile.TarInfo("/tmp/evil")],
        [link("lib/evil", "/etc")],
        [link("lib/evil", "../../up")],
        [link("evil", "lib/../../up")],
        [link("lib/evil", "../etc/passwd", tarfile.LNKTYPE)],
        [link("evil", "", tarfile.CHRTYPE)],
        [link("evil", "", tarfile.FIFOTYPE)],
        [link("deep", "lib"), tarfile.TarInfo("deep/evil")],
        [link("p", "lib"), link("p/up", "../..")],
    ],
    ids=lambda members: " ".join(f"{m.name}→{m.linkname}" for m in members),
)
def test_nothing_is_unpacked_outside_the_environment(node: Node, members: list[tarfile.TarInfo]) -> None:
    node.context = register(node.run, make_archive(node.archive, *members))
    code, said = node.refusal()
    assert code == 4
    assert "is or leads out of it" in said
    assert [path.name for path in node.cache.iterdir() if path.name in ("up", "evil")] == []
    assert not node.layout.folder("environments", node.digest).exists()
    assert not list((node.cache / "incoming").iterdir())


def test_links_within_the_environment_are_kept(node: Node) -> None:
    members = [link("lib64", "lib"), link("share/doc", "../lib"), link("lib/same", "../lib64")]
    node.context = register(node.run, make_archive(node.archive, *members))
    assert told(node.start())
    assert os.readlink(node.layout.folder("environments", node.digest) / "share" / "doc") == "../lib"


def test_a_record_that_was_changed_is_not_obeyed(node: Node) -> None:
    path = node.run / names.context(node.digest)
    path.write_bytes(path.read_bytes().replace(b"env.tar.gz", b"bad.tar.gz"))
    code, said = node.refusal()
    assert (code, "is damaged: run `fsctx env add` again" in said) == (4, True)
    path.write_bytes(path.read_bytes()[:-40])
    assert node.refusal()[0] == 4


def test_what_is_not_there_or_not_visible_is_said(node: Node, tmp_path: Path) -> None:
    cache = ("--cache", str(node.cache))
    done = bootstrap(node.run, "f" * 64, *cache)
    assert (done.returncode, "does not know the environment" in done.stderr) == (78, True)
    done = bootstrap(node.run, "../../etc", *cache)
    assert (done.returncode, "is no digest" in done.stderr) == (78, True)
    done = bootstrap(tmp_path / "unmounted", node.digest, *cache)
    assert (done.returncode, "is the filesystem mounted here?" in done.stderr) == (75, True)
    node.archive.rename(tmp_path / "elsewhere")
    assert node.refusal()[0] == 4
    node.origin.rmdir()
    code, said = node.refusal()
    assert (code, "cannot be seen from this node" in said) == (75, True)


def test_an_origin_that_changed_is_refused(node: Node) -> None:
    content = bytearray(node.archive.read_bytes())
    content[-1] ^= 1
    node.archive.write_bytes(content)
    code, said = node.refusal()
    assert (code, "changed since it was added" in said) == (4, True)
    assert not node.layout.folder("contexts", node.digest).exists()


def test_an_archive_that_was_damaged_when_it_was_added_is_refused(node: Node) -> None:
    node.archive.write_bytes(node.archive.read_bytes()[:-30])
    node.context = register(node.run, node.archive)
    code, said = node.refusal()
    assert (code, "is damaged" in said) == (4, True)
    assert not node.layout.folder("environments", node.digest).exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"python": "3.4", "soabi": "cpython-34m"}, "this node has no Python 3.4 (cpython-34m)"),
        ({"soabi": environment().soabi + "-musl"}, "this node has no Python"),
        ({"packed": "conda", "soabi": "cpython-311-riscv-linux-gnu"}, "the environment is for cpython-311-riscv"),
        ({"unpacked_bytes": 1 << 60}, "GB free and the environment needs"),
    ],
)
def test_a_node_that_cannot_is_left_to_others(node: Node, changed: dict[str, Any], said: str) -> None:
    node.context = register(node.run, node.archive, **changed)
    code, line = node.refusal()
    assert (code, said in line) == (75, True), line


def test_a_full_disk_leaves_nothing_half_made(node: Node, small_disk: Path) -> None:
    large = tarfile.TarInfo("large")
    with tarfile.open(node.archive, "w:gz") as tar, open("/dev/zero", "rb") as zeros:
        large.size = 16 << 20
        tar.addfile(large, zeros)
    node.context, node.cache = register(node.run, node.archive), small_disk / "cache"
    code, said = node.refusal()
    assert (code, "is full: free some space" in said) == (75, True), said
    assert not list((node.cache / "environments").iterdir())
    assert not list((node.cache / "incoming").iterdir())


def test_a_cache_that_others_can_write_is_not_used(node: Node) -> None:
    node.cache.mkdir(mode=0o700)
    node.cache.chmod(0o777)
    code, said = node.refusal()
    assert (code, "is not a folder of this user alone" in said) == (75, True)


class Peer:
    """A real server of another node's cache, told of in the run."""

    def __init__(self, node: Node, root: Path, *, secret: str = SECRET, limits: ServerLimits | None = None) -> None:
        self.server = PeerServer(Shelf(root, [node.context]), frozenset([node.digest]), secret, limits=limits)
        store = PosixStore(node.run)
        store.make_folder(names.PEERS)
        store.create_private(names.PEERS_KEY, SECRET.encode())
        record = PeerRecord(
            agent=f"agent-{secret[0]}",
            host="other",
            address="127.0.0.1",
            port=self.server.start("127.0.0.1"),
            cache="other",
            contexts={node.digest: Shelf(root, [node.context]).held(node.digest)},
        )
        peers.announce(store, record)


@pytest.fixture
def serve(node: Node, tmp_path: Path) -> Iterator[Any]:
    """Serve the environment from other nodes' caches, which `spoil` may change first."""
    started: list[Peer] = []

    def start(*, spoil: Any = lambda _: None, **options: Any) -> None:
        root = tmp_path / f"other-{len(started)}"
        NodeCache(root).fetch(node.context)
        spoil(node.context.path_in(Layout(root).folder("contexts", node.digest)))
        started.append(Peer(node, root, **options))

    yield start
    for peer in started:
        peer.server.stop()


def test_peers_give_what_the_shared_filesystem_need_not(node: Node, serve: Any) -> None:
    serve()
    node.archive.unlink()
    done = node.start()
    assert told(done)
    assert "from peers" in done.stderr
    assert "shared filesystem" not in done.stderr


def test_without_peers_none_is_asked(node: Node, serve: Any) -> None:
    serve()
    assert "from peers" not in node.start("--no-peers").stderr


def spoilt(archive: Path) -> None:
    archive.parent.chmod(0o700)
    archive.chmod(0o600)
    archive.write_bytes(bytes(archive.stat().st_size))


@pytest.mark.parametrize(
    "options",
    [{"spoil": spoilt}, {"secret": "another run's"}, {"limits": ServerLimits(uploads=0)}],
    ids=["wrong bytes", "another secret", "busy"],
)
def test_peers_that_fail_cost_no_more_than_a_moment(node: Node, serve: Any, options: Any) -> None:
    serve(**options)
    done = node.start()
    assert told(done)
    assert "from the shared filesystem" in done.stderr
    assert "from peers" not in done.stderr


def test_a_peer_that_sent_wrong_bytes_is_not_asked_again(node: Node, serve: Any) -> None:
    serve(spoil=spoilt)
    module = bootstrap_module()
    record, _ = module.read_record(str(node.run), node.digest)
    peer = module.Peers(str(node.run), node.digest)
    chunks = list(module.Cache(str(node.cache), record, node.digest)._chunks())
    assert [peer.get(*chunk) for chunk in chunks] == [None] * len(chunks)
    assert len(peer._dropped) == 1
    assert peer._connections == {}


def test_a_peer_that_answers_nothing_is_given_up(node: Node) -> None:
    module = bootstrap_module()
    module.Peers.SILENCE_S = module.Peers.CONNECT_S = 0.2
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = PosixStore(node.run)
        store.make_folder(names.PEERS)
        store.create_private(names.PEERS_KEY, SECRET.encode())
        port = silent.getsockname()[1]
        record = PeerRecord(
            agent="a", host="h", address="127.0.0.1", port=port, cache="c", contexts={node.digest: b"\1"}
        )
        peers.announce(store, record)
        (node.run / names.peer("torn")).write_bytes(codec.encode(record)[:-9])
        peer = module.Peers(str(node.run), node.digest)
        assert peer.get("0" * 64, 0, CHUNK) is None
        assert peer._dropped == {"a.json"}
