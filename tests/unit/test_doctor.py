"""What `fsctx doctor` says and leaves behind, and what `fsctx plan` makes of it."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fabricate import fabricate
from planning import make_plan, manifest_of

from fsctx.cli.doctor import doctor
from fsctx.coordinator.doctor import words
from fsctx.coordinator.doctor.visit import Visit, visit
from fsctx.coordinator.plan.advice import advise
from fsctx.errors import InputError, NoSpace, NotComplete
from fsctx.protocol import names
from fsctx.protocol.facts import Facts, read_facts, write_facts
from fsctx.store import PosixStore
from fsctx.store.mounts import Mount, mount_of, mounts
from fsctx.store.probing import ProbeSystem


def run(*arguments: str | Path, **options: Any) -> Result:
    before = signal.getsignal(signal.SIGTERM)
    try:
        return CliRunner().invoke(doctor, [str(argument) for argument in arguments], standalone_mode=False, **options)
    finally:
        signal.signal(signal.SIGTERM, before)


def facts(folder: Path, **changes: Any) -> Facts:
    given: dict[str, Any] = {
        "date": "2026-01-01T00:00:00+00:00",
        "version": "0",
        "host": "h",
        "peer": "p",
        "kind": mount_of(folder, mounts()).kind,
        "is_safe": True,
        "has_symlinks": True,
        "publish": "symlink",
        "ttl_s": 77.0,
    }
    return Facts(**{**given, **changes})


class NoLinks(ProbeSystem):
    """A filesystem with neither symlinks nor hard links; its racers see the real one, and agree."""

    def symlink(self, target: str, path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    def link(self, source: str, path: str) -> None:
        raise PermissionError(1, "Operation not permitted")


class NoSymlinks(ProbeSystem):
    def symlink(self, target: str, path: str) -> None:
        raise PermissionError(1, "Operation not permitted")


def quick(folder: Path, system: ProbeSystem | None = None) -> Visit:
    return visit(folder, wait_s=0.0, progress=lambda step: None, system=system, n_names=50)


def test_a_local_disk_is_safe_and_only_the_facts_are_left(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.return_value == 0, done.output
    assert "\nverdict: safe\n" in done.output
    assert "race: exclusive create" in done.output
    assert os.listdir(tmp_path) == [names.DOCTOR]
    found = read_facts(PosixStore(tmp_path))
    assert found is not None
    assert (found.is_safe, found.publish, found.ttl_s, found.peer) == (True, "symlink", 15.0, None)


def test_the_document_has_the_promised_shape(tmp_path: Path) -> None:
    document = words.to_json(quick(tmp_path).report)
    assert list(document) == [
        "folder",
        "host",
        "peer",
        "verdict",
        "why",
        "kind",
        "is_shared",
        "ttl_s",
        "has_symlinks",
        "publish",
        "checks",
    ]
    assert document["verdict"] == "safe"
    assert {tuple(check) for check in document["checks"]} == {("check", "level", "seen")}


def test_a_folder_without_symlinks_publishes_by_link(tmp_path: Path) -> None:
    done = quick(tmp_path, NoSymlinks())
    assert (done.report.publish, done.report.has_symlinks) == ("link", False)
    assert any("published by link(2)" in why for why in done.report.why)


def test_a_folder_with_neither_is_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsctx.coordinator.doctor.visit.ProbeSystem", NoLinks)
    done = run(tmp_path)
    assert done.return_value == 4
    assert "verdict: unsafe: there is no way to publish" in done.output


@pytest.mark.parametrize("name", ["none", "file", "file/below"])
def test_a_folder_that_is_none_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for arguments in ((tmp_path / name,), (tmp_path / name, "--peer")):
        error = run(*arguments).exception
        assert isinstance(error, InputError)
        assert str(tmp_path / name) in str(error)
        assert "\n" not in str(error)


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    class ReadOnly(ProbeSystem):
        def make_folder(self, path: str) -> None:
            raise OSError(30, "Read-only file system")

    with pytest.raises(InputError, match=r"cannot be written to \(Read-only file system\)"):
        quick(tmp_path, ReadOnly())


def test_a_full_disk_is_told_and_left_as_it_was(small_disk: Path) -> None:
    with contextlib.suppress(OSError), open(small_disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with pytest.raises(NoSpace, match="free some space, then run fsctx doctor again"):
        quick(small_disk)
    assert os.listdir(small_disk) == ["filler"]


def test_a_run_folder_may_be_looked_at(tmp_path: Path) -> None:
    made = fabricate(tmp_path / "run")
    before = sorted(os.listdir(made.root))
    quick(made.root)
    assert sorted(os.listdir(made.root)) == sorted([*before, names.DOCTOR])


def test_joining_where_nobody_waits_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "fsctx-doctor-dead").mkdir()
    (tmp_path / "fsctx-doctor-dead" / "waiting").write_text("1")
    error = run(tmp_path, "--peer", "--wait", "1").exception
    assert isinstance(error, NotComplete)
    assert "start one on the other host first" in str(error)


def test_plan_goes_by_the_nearest_facts_on_the_same_filesystem(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    write_facts(PosixStore(tmp_path), facts(tmp_path))
    found = advise(below / "run", mounts(), is_new=True)
    assert (found.ttl_s, found.publish) == (77.0, "symlink")
    assert str(tmp_path) in found.notes[0]
    write_facts(PosixStore(below), facts(tmp_path, ttl_s=88.0, publish="link", has_symlinks=False))
    found = advise(below / "run", mounts(), is_new=True)
    assert (found.ttl_s, found.publish) == (88.0, "link")
    assert "published by link(2)" in found.notes[0]
    elsewhere = [*mounts(), Mount(folder=str(below), kind="nfs4")]
    assert advise(below / "run", elsewhere, is_new=True).ttl_s == 60.0


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 1}'])
def test_facts_that_cannot_be_read_are_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / names.DOCTOR).write_bytes(content)
    assert advise(tmp_path, mounts(), is_new=True).notes == ()


def test_plan_refuses_a_filesystem_that_was_found_unsafe(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("one\ntwo\n")
    write_facts(PosixStore(tmp_path), facts(tmp_path, is_safe=False, why=("names have two winners",)))
    with pytest.raises(InputError, match=r"found unsafe \(names have two winners\): plan on another one"):
        make_plan(tmp_path / "claims.txt", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_looked_at_may_become_the_run(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("one\ntwo\n")
    (tmp_path / "run").mkdir()
    write_facts(PosixStore(tmp_path / "run"), facts(tmp_path, publish="link", has_symlinks=False))
    make_plan(tmp_path / "claims.txt", run=tmp_path / "run")
    manifest = manifest_of(tmp_path / "run")
    assert (manifest.ttl_s, manifest.publish) == (77.0, "link")
    assert not make_plan(tmp_path / "claims.txt", run=tmp_path / "run").is_new


def test_what_two_hosts_found_unsafe_stays(tmp_path: Path) -> None:
    standing = facts(tmp_path, is_safe=False, why=("names have two winners",))
    write_facts(PosixStore(tmp_path), standing)
    kept = quick(tmp_path).kept
    assert kept is not None
    assert "two hosts (h, p) found it unsafe (names have two winners)" in words.kept(kept)
    assert read_facts(PosixStore(tmp_path)) == standing
