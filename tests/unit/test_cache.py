"""The node cache: one copy, whole or not at all, whatever happens meanwhile."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from contexts import CHUNK, context_of, cut, problems, rot

from fsctx.cache import NodeCache, default_root
from fsctx.cache.folders import Folders
from fsctx.cli.cache import cache as command
from fsctx.errors import Damaged, InputError, NoSpace, Unfit
from fsctx.protocol.manifest import Context, ModelFile


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_of(tmp_path / "origin", {"config.json": b"{}", "sub/weights": os.urandom(2500), "empty": b""})


@pytest.fixture
def node(tmp_path: Path) -> NodeCache:
    return NodeCache(tmp_path / "cache")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_context_is_copied_once_and_then_found(node: NodeCache, context: Context) -> None:
    first, second = node.fetch(context), node.fetch(context)
    assert (first.source, first.bytes) == ("origin", context.size_bytes)
    assert (second.source, second.bytes, second.path) == ("node", 0, first.path)
    for file in context.files:
        assert (first.path / file.path).read_bytes() == (Path(context.origin) / file.path).read_bytes()
        assert (first.path / file.path).stat().st_mode & 0o222 == 0


def with_adapter(context: Context, folder: Path) -> Context:
    """Return the context with an adapter of one file, whose origin is this folder."""
    own = context_of(folder, {"weights": b"of the adapter"})
    file = replace(own.files[0], path="adapter/weights")
    return replace(context, kind="lora", digest="d2", files=(*context.files, file), adapter=str(folder))


def test_an_adapters_files_come_from_their_own_folder_into_one_beside_the_models(
    node: NodeCache, context: Context, tmp_path: Path
) -> None:
    folder = node.fetch(with_adapter(context, tmp_path / "elsewhere")).path
    assert (folder / "adapter" / "weights").read_bytes() == b"of the adapter"
    assert (folder / "config.json").read_bytes() == b"{}"


def test_what_the_node_has_of_the_model_is_copied_there_and_only_the_adapter_is_fetched(
    node: NodeCache, context: Context, tmp_path: Path
) -> None:
    node.fetch(context)
    adapted = with_adapter(context, tmp_path / "elsewhere")
    shutil.move(context.origin, tmp_path / "away")
    Path(context.origin).mkdir()
    for file in context.files:  # of the right sizes, and none of the right bytes
        path = Path(context.origin) / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(file.size_bytes))
    fetched = node.fetch(adapted)
    assert (fetched.bytes, fetched.source) == (len(b"of the adapter"), "origin")
    assert (fetched.path / "sub/weights").read_bytes() == (tmp_path / "away/sub/weights").read_bytes()


def test_what_is_wrong_in_the_nodes_copy_of_the_model_is_fetched(
    node: NodeCache, context: Context, tmp_path: Path
) -> None:
    rot(node.fetch(context).path / "sub/weights")
    fetched = node.fetch(with_adapter(context, tmp_path / "elsewhere"))
    assert fetched.bytes == 500 + len(b"of the adapter")
    assert (fetched.path / "sub/weights").read_bytes() == (Path(context.origin) / "sub/weights").read_bytes()


@pytest.mark.parametrize(("change", "error"), [("changed", Damaged), ("gone", Damaged), ("unseen", Unfit)])
def test_what_is_wrong_with_an_adapters_files_is_said_of_its_own_folder(
    node: NodeCache, context: Context, tmp_path: Path, change: str, error: type[Exception]
) -> None:
    adapted = with_adapter(context, tmp_path / "elsewhere")
    path = tmp_path / "elsewhere" / "weights"
    match change:
        case "changed":
            path.write_bytes(b"of the other..")
        case "gone":
            path.unlink()
        case _:
            shutil.rmtree(path.parent)
    with pytest.raises(error, match=str(path if change != "unseen" else path.parent)):
        node.fetch(adapted)


def test_agents_of_a_node_that_start_together_read_the_origin_once(node: NodeCache, context: Context) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: NodeCache(node.root).fetch(context), range(8)))
    assert sum(fetched.bytes > 0 for fetched in found) == 1


def test_a_gguf_context_is_its_file(node: NodeCache, tmp_path: Path) -> None:
    context = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")
    assert node.fetch(context).path.read_bytes() == b"GGUF"


@pytest.mark.parametrize("content", [b"x" * 2500, b"short", b"y" * 2501, b""])
def test_a_file_that_changed_since_the_plan_is_damage_and_leaves_nothing(
    node: NodeCache, context: Context, content: bytes
) -> None:
    (Path(context.origin) / "sub/weights").write_bytes(content)
    with pytest.raises(Damaged, match="sub/weights"):
        node.fetch(context)
    assert node.entries() == []
    assert names(node.root / "incoming") == []


def test_a_file_that_vanished_since_the_plan_is_damage(node: NodeCache, context: Context) -> None:
    (Path(context.origin) / "config.json").unlink()
    with pytest.raises(Damaged, match=r"config\.json is gone"):
        node.fetch(context)


def test_an_origin_that_this_node_cannot_see_is_for_another_node(node: NodeCache, context: Context) -> None:
    with pytest.raises(Unfit, match="mounted"):
        node.fetch(replace(context, origin="/nonexistent"))


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b"])
def test_a_file_name_that_leads_out_of_the_context_is_refused(node: NodeCache, context: Context, path: str) -> None:
    bad = Context(
        digest="d2",
        kind="hf",
        name="m",
        origin=context.origin,
        files=(ModelFile(path=path, size_bytes=0, chunks=()),),
        chunk_bytes=CHUNK,
    )
    with pytest.raises(Damaged, match="within"):
        node.fetch(bad)


def test_a_copy_that_lost_bytes_is_fetched_again(node: NodeCache, context: Context) -> None:
    cut(node.fetch(context).path / "sub/weights")
    again = node.fetch(context)
    assert (again.source, again.bytes) == ("origin", CHUNK + 500)  # the first chunk was still right
    assert problems(node) == {"contexts": ()}


def test_a_full_disk_is_said_and_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    node = NodeCache(small_disk / "cache")
    big = context_of(tmp_path / "origin", {"weights": bytes(9 << 20)})
    with pytest.raises(NoSpace, match="GB free"):
        node.fetch(big)
    assert names(node.root / "incoming") == []


def test_a_disk_that_fills_up_while_converting_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    node = NodeCache(small_disk / "cache")
    gguf = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")

    def convert(_: Path, target: Path) -> None:
        target.mkdir()
        (target / "weights").write_bytes(bytes(9 << 20))

    with pytest.raises(NoSpace, match="full"):
        node.converted(gguf, convert)
    assert names(node.root / "incoming") == []
    assert names(node.root / "converted") == []


def test_a_gguf_file_is_converted_once(node: NodeCache, tmp_path: Path) -> None:
    gguf = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")
    calls: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        calls.append(source)
        target.mkdir()
        (target / "weights").write_bytes(source.read_bytes()[::-1])

    first, second = node.converted(gguf, convert), node.converted(gguf, convert)
    assert (first.path, first.source, second.source) == (second.path, "origin", "node")
    assert len(calls) == 1
    assert (first.path / "weights").read_bytes() == b"FUGG"
    assert first.size_bytes == second.size_bytes == 4
    assert problems(node) == {"contexts": (), "converted": ()}


def test_a_failed_conversion_leaves_nothing_and_its_error_passes(node: NodeCache, tmp_path: Path) -> None:
    gguf = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")

    def convert(_: Path, target: Path) -> None:
        target.mkdir()
        raise Damaged("differs")

    with pytest.raises(Damaged, match="differs"):
        node.converted(gguf, convert)
    assert names(node.root / "incoming") == []


def test_a_process_killed_while_converting_leaves_debris_that_the_next_one_cleans(
    node: NodeCache, tmp_path: Path
) -> None:
    gguf = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")
    node.fetch(gguf)
    code = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from fsctx.cache import NodeCache
        from fsctx.protocol import codec
        from fsctx.protocol.manifest import Context

        def convert(source, target):
            target.mkdir()
            (target / "half").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

        context = codec.decode(sys.stdin.buffer.read(), Context, where="stdin")
        NodeCache(Path({str(node.root)!r})).converted(context, convert)
    """)
    from fsctx.protocol import codec

    ended = subprocess.run([sys.executable, "-c", code], input=codec.encode(gguf), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(names(node.root / "incoming")) == 1

    def convert(_: Path, target: Path) -> None:
        target.mkdir()
        (target / "weights").write_bytes(b"whole")

    assert names(node.converted(gguf, convert).path) == ["weights"]
    assert names(node.root / "incoming") == []


def test_verify_names_the_file_that_rotted(node: NodeCache, context: Context) -> None:
    rot(node.fetch(context).path / "sub/weights")
    node.release()
    (finding,) = node.verify()
    assert len(finding.problems) == 1
    assert "sub/weights is damaged (chunk 2 of 3)" in finding.problems[0]
    assert node.fetch(context).bytes == 500  # the chunk that was wrong
    assert problems(node) == {"contexts": ()}


def test_what_is_damaged_and_in_use_stays_until_it_is_not(node: NodeCache, context: Context) -> None:
    path = node.fetch(context).path / "sub/weights"
    rot(path)
    assert [finding.is_in_use for finding in node.verify()] == [True]
    assert path.exists()
    node.release()
    assert [finding.is_in_use for finding in node.verify()] == [False]
    assert not path.exists()


def test_what_was_converted_and_is_damaged_is_converted_again(node: NodeCache, tmp_path: Path) -> None:
    gguf = context_of(tmp_path / "origin", {"model.gguf": b"GGUF"}, kind="gguf")

    def convert(_: Path, target: Path) -> None:
        target.mkdir()
        (target / "weights").write_bytes(b"whole")

    rot(node.converted(gguf, convert).path / "weights")
    node.release()
    assert sum(bool(finding.problems) for finding in node.verify()) == 1
    assert [entry.kind for entry in node.entries()] == ["contexts"]
    assert (node.converted(gguf, convert).path / "weights").read_bytes() == b"whole"


def test_prune_removes_what_was_unused_for_long_and_what_is_half_made(node: NodeCache, context: Context) -> None:
    folder = node.fetch(context).path
    node.release()
    (node.root / "incoming" / "contexts-d9").mkdir()
    assert [(entry.digest, entry.is_whole) for entry in node.prune(unused_s=3600)] == [("d9", False)]
    assert names(node.root / "incoming") == []
    os.utime(folder, (1, 1))
    assert [entry.digest for entry in node.prune(unused_s=3600)] == ["d1"]
    assert node.entries() == []
    assert node.fetch(context).source == "origin"


def test_prune_leaves_alone_what_another_process_is_making(node: NodeCache, context: Context) -> None:
    folders = Folders(node.root)
    folders.prepare()
    folders.layout.incoming("contexts", "d1").mkdir()
    with folders.locked(folders.layout.lock("d1")):
        assert node.prune() == []
    assert [entry.is_whole for entry in node.prune()] == [False]


def test_the_cache_is_for_its_owner_alone(node: NodeCache, context: Context) -> None:
    node.fetch(context)
    assert node.root.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_anybody_may_write_to_is_refused(node: NodeCache, context: Context) -> None:
    node.root.mkdir()
    node.root.chmod(0o777)
    with pytest.raises(InputError, match="chmod"):
        node.fetch(context)


def test_a_folder_of_another_user_is_refused(node: NodeCache, context: Context) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    node.root.mkdir(mode=0o700)
    os.chown(node.root, 12345, 12345)
    with pytest.raises(InputError, match="12345"):
        node.fetch(context)


def test_a_cache_that_cannot_be_made_is_an_input_error(tmp_path: Path, context: Context) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="--cache"):
        NodeCache(tmp_path / "file" / "cache").fetch(context)


@pytest.mark.parametrize(
    ("environ", "option", "expected"),
    [
        ({"FSCTX_CACHE": "/b", "TMPDIR": "/c"}, Path("/a"), "/a"),
        ({"FSCTX_CACHE": "/b", "TMPDIR": "/c"}, None, "/b"),
        ({"_CONDOR_SCRATCH_DIR": "/s", "TMPDIR": "/c"}, None, f"/s/fsctx-{os.getuid()}"),
        ({"SLURM_TMPDIR": "/s", "TMPDIR": "/c"}, None, f"/s/fsctx-{os.getuid()}"),
        ({"FSCTX_CACHE": "", "TMPDIR": "/c"}, None, f"/c/fsctx-{os.getuid()}"),
    ],
)
def test_the_cache_is_where_the_user_the_environment_or_the_batch_system_say(
    environ: dict[str, str], option: Path | None, expected: str
) -> None:
    assert default_root(environ, option) == Path(expected)


def test_the_commands_list_verify_and_prune(node: NodeCache, context: Context) -> None:
    node.fetch(context)
    node.release()
    run, where = CliRunner().invoke, ["--cache", str(node.root), "--json"]
    listed = json.loads(run(command, ["list", *where]).output)
    assert [(e["digest"], e["size_bytes"], e["files"]) for e in listed["entries"]] == [("d1", context.size_bytes, 3)]
    assert json.loads(run(command, ["verify", *where]).output)["damaged"] == []
    assert json.loads(run(command, ["prune", *where]).output)["removed"] == []
    assert len(json.loads(run(command, ["prune", "d1", *where]).output)["removed"]) == 1
    for arguments in (["list"], ["verify"], ["prune", "--all"]):
        assert run(command, [*arguments, "--cache", str(node.root)]).exit_code == 0


def test_prune_takes_what_a_list_shows_of_a_digest(node: NodeCache, context: Context) -> None:
    node.fetch(dataclasses.replace(context, digest="d1" * 32))
    node.release()
    where = ["--cache", str(node.root), "--json"]
    for unknown in ("", "d1d1d", "d2d2d2"):
        refused = CliRunner().invoke(command, ["prune", "d1" * 8, unknown, *where])
        assert isinstance(refused.exception, InputError)
        assert f"no entry '{unknown}'" in str(refused.exception)
    assert len(json.loads(CliRunner().invoke(command, ["prune", "d1" * 8, *where]).output)["removed"]) == 1


def test_verify_ends_with_damage_and_says_what_happens_next(node: NodeCache, context: Context) -> None:
    rot(node.fetch(context).path / "sub/weights")
    run, where = CliRunner().invoke, ["verify", "--cache", str(node.root)]
    for expected in ("1 in use: run this again", "the next agent mends them"):
        ended = run(command, where)
        assert isinstance(ended.exception, Damaged)
        assert expected in str(ended.exception)
        node.release()
    assert run(command, where).exit_code == 0


def test_list_shows_what_is_in_use_and_the_quota(
    node: NodeCache, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.fetch(context)
    monkeypatch.setenv("FSCTX_CACHE_QUOTA", "2GB")
    shown = CliRunner().invoke(command, ["list", "--cache", str(node.root)]).output
    assert "of 2.00 GB" in shown
    assert "in use" in shown
    node.release()
    listed = json.loads(CliRunner().invoke(command, ["list", "--cache", str(node.root), "--json"]).output)
    assert (listed["quota_bytes"], listed["entries"][0]["is_pinned"]) == (2_000_000_000, False)


@pytest.mark.parametrize("name", ["list", "verify", "prune"])
def test_the_commands_make_no_cache_and_touch_none_of_others(tmp_path: Path, name: str) -> None:
    assert CliRunner().invoke(command, [name, "--cache", str(tmp_path / "none")]).exit_code == 0
    assert not (tmp_path / "none").exists()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    ended = CliRunner().invoke(command, [name, "--cache", str(shared)])
    assert isinstance(ended.exception, InputError)
    assert names(shared) == []
