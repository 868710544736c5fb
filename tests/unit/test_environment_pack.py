"""Packing an environment, making it known to a run, and all that is refused."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from environments import (
    BASE,
    PYTHON,
    bootstrap,
    describe_package,
    make_archive,
    make_conda,
    make_venv,
    site_of,
    told,
    write_script,
)
from fabricate import fabricate

from fsctx.cli import cli
from fsctx.coordinator.environment.archive import RECORD
from fsctx.errors import Damaged, InputError
from fsctx.protocol import names
from fsctx.protocol.manifest import read_context
from fsctx.store import PosixStore


def call(*arguments: Path | str) -> Result:
    return CliRunner().invoke(cli, ["env", *map(str, arguments)])


def refusal(*arguments: Path | str, kind: type[Exception] = InputError) -> str:
    """The one line with which a call is refused."""
    error = call(*arguments).exception
    assert isinstance(error, kind), error
    assert "\n" not in str(error)
    return str(error)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments") / "venv"
    make_venv(folder)
    return folder


@pytest.fixture
def own(venv: Path, tmp_path: Path) -> Path:
    """A copy of the environment for a test to spoil."""
    folder = tmp_path / "venv"
    shutil.copytree(venv, folder, symlinks=True)
    write_script(folder)
    return folder


def packed(venv: Path, output: Path) -> dict[str, Any]:
    done = call("pack", output, "--python", venv / "bin" / "python", "--json")
    assert done.exception is None, done.exception
    report: dict[str, Any] = json.loads(done.output)
    return report


def test_an_environment_works_where_it_was_not_made_and_its_own_place_is_gone(own: Path, tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    packed(own, archive)
    run = fabricate(tmp_path / "run")
    added = json.loads(call("add", run.root, archive, "--json").output)
    shutil.rmtree(own)
    command = [BASE, *added["command"][1:], "--cache", str(tmp_path / "cache"), "--engine", "fake"]
    seen = told(subprocess.run(command, env={}, capture_output=True, text=True, check=False))
    folder = tmp_path / "cache" / "environments" / added["environment"]
    assert seen["arguments"] == ["agent", str(run.root), "--engine", "fake"]
    assert (seen["prefix"], seen["base"]) == (str(folder), BASE)
    assert seen["path"].startswith(f"{folder}/bin:")
    script = subprocess.run([folder / "bin" / "fsctx"], capture_output=True, text=True, check=True)
    assert script.stdout.strip() == str(folder)


@pytest.mark.slow
def test_a_conda_environment_brings_its_own_interpreter(tmp_path: Path) -> None:
    make_conda(tmp_path / "conda")
    report = packed(tmp_path / "conda", tmp_path / "env.tar.gz")
    assert report["environment"]["packed"] == "conda"
    run = fabricate(tmp_path / "run")
    digest = json.loads(call("add", run.root, tmp_path / "env.tar.gz", "--json").output)["environment"]
    shutil.rmtree(tmp_path / "conda")
    seen = told(bootstrap(run.root, digest, "--cache", str(tmp_path / "cache")))
    folder = tmp_path / "cache" / "environments" / digest
    assert seen["prefix"] == str(folder)
    assert seen["base"] == str(folder / "bin" / f"python{PYTHON}")
    assert str(tmp_path / "conda") not in (folder / "bin" / "tool").read_text()


def test_the_record_says_what_a_node_needs_and_the_interpreter_stays_behind(own: Path, tmp_path: Path) -> None:
    (own / "share").mkdir()
    (own / "share" / "tool.conf").write_text(f"home={own}/share\n")
    report = packed(own, tmp_path / "env.tar.gz")
    with tarfile.open(tmp_path / "env.tar.gz") as tar:
        members = tar.getmembers()
    assert members[0].name == RECORD
    assert not [m.name for m in members if m.name.startswith("bin/python")]
    assert report["environment"]["python"] == PYTHON
    assert report["environment"]["packed"] == "venv"
    assert f"a node needs Python {PYTHON}" in report["notes"][0]
    assert "share/tool.conf mention" in report["notes"][1]


def test_packing_leaves_nothing_behind_that_is_not_whole(own: Path, tmp_path: Path) -> None:
    (site_of(own) / "away.pth").write_text("/elsewhere\n")
    folder = tmp_path / "out"
    folder.mkdir()
    assert "editable" in refusal("pack", folder / "env.tar.gz", "--python", own / "bin" / "python")
    assert list(folder.iterdir()) == []


def make_editable(own: Path) -> None:
    describe_package(site_of(own), "mine", direct_url='{"url": "file:///src", "dir_info": {"editable": true}}')


def remove_fsctx(own: Path) -> None:
    shutil.rmtree(site_of(own) / "fsctx-1.0.dist-info")


def see_system(own: Path) -> None:
    config = own / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = false", "packages = true"))


def link_away(own: Path) -> None:
    (own / "share").mkdir()
    (own / "share" / "data").symlink_to("../../data")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (make_editable, "installed in editable form, so not in it: mine: install them without -e"),
        (remove_fsctx, "has no fsctx, which the nodes are to run: install it there"),
        (see_system, "make one without --system-site-packages"),
        (link_away, "share/data: links by an absolute path or out of the environment"),
    ],
)
def test_what_would_not_work_on_the_nodes_is_refused(own: Path, tmp_path: Path, spoil: Any, said: str) -> None:
    spoil(own)
    assert said in refusal("pack", tmp_path / "env.tar.gz", "--python", own / "bin" / "python")
    assert not (tmp_path / "env.tar.gz").exists()


def test_outputs_and_interpreters_that_cannot_be_are_refused(venv: Path, tmp_path: Path) -> None:
    python = venv / "bin" / "python"
    (tmp_path / "there.tar.gz").touch()
    assert "any Python can unpack" in refusal("pack", tmp_path / "env.zip", "--python", python)
    assert "exists" in refusal("pack", tmp_path / "there.tar.gz", "--python", python)
    assert "is no folder" in refusal("pack", tmp_path / "no" / "env.tar.gz", "--python", python)
    assert "does not run" in refusal("pack", tmp_path / "env.tar.gz", "--python", tmp_path / "none")
    assert "no Python" in refusal("pack", tmp_path / "env.tar.gz", "--python", "/bin/ls")
    assert "neither a virtual nor a conda" in refusal("pack", tmp_path / "env.tar.gz", "--python", BASE)


def test_adding_again_changes_nothing_and_agents_find_the_record(tmp_path: Path) -> None:
    run, archive = fabricate(tmp_path / "run"), make_archive(tmp_path / "env.tar.gz")
    manifest = run.store.read(names.MANIFEST)
    first, again = (json.loads(call("add", run.root, archive, "--json").output) for _ in range(2))
    assert first == again
    context = read_context(PosixStore(run.root), first["environment"])
    assert context.kind == "env"
    assert context.environment is not None
    assert run.store.read(names.MANIFEST) == manifest


def test_archives_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run").root
    other = tmp_path / "other.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        tar.add(sys.executable, "bin/python")
    zstd = tmp_path / "env.tar.zst"
    zstd.write_bytes(b"\x28\xb5\x2f\xfd")
    assert "was not made by `fsctx env pack`" in refusal("add", run, other)
    assert "is no .tar.gz" in refusal("add", run, zstd)
    assert "cannot be read" in refusal("add", run, tmp_path / "none.tar.gz")
    assert "is not a run" in refusal("add", tmp_path, make_archive(tmp_path / "env.tar.gz"))


def test_a_damaged_archive_is_found_before_any_node_gets_it(tmp_path: Path) -> None:
    run, archive = fabricate(tmp_path / "run"), make_archive(tmp_path / "env.tar.gz")
    content, before = archive.read_bytes(), run.store.list(names.CONTEXTS)
    archive.write_bytes(content[:-20])
    assert "is damaged" in refusal("add", run.root, archive, kind=Damaged)
    middle = len(content) // 2
    archive.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert "is damaged" in refusal("add", run.root, archive, kind=Damaged)
    assert sorted(run.store.list(names.CONTEXTS)) == sorted(before)


def test_the_command_that_is_printed_needs_nothing_but_python(tmp_path: Path) -> None:
    run, archive = fabricate(tmp_path / "run"), make_archive(tmp_path / "env.tar.gz")
    added = json.loads(call("add", run.root, archive, "--json").output)
    assert told(bootstrap(run.root, added["environment"], "--cache", str(tmp_path / "cache")))["arguments"]
