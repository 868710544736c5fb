"""Output files: whole or not at all, refused before any work where they cannot be written."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from fabricate import fabricate, finish_all

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.coordinator.collect.writers import replacing
from fsctx.errors import InputError, NoSpace

ENDINGS = ("parquet", "jsonl", "csv")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_stood_there_is_replaced_and_nothing_else_is_left(tmp_path, ending):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    output = tmp_path / f"out.{ending}"
    output.write_text("old")
    collect(run.store, Request(output=output))
    assert output.read_bytes() != b"old"
    assert sorted(os.listdir(tmp_path)) == [output.name, "run"]


def test_a_failure_leaves_what_stood_there(tmp_path):
    output = tmp_path / "out.csv"
    output.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(output) as file:
        _write_and_fail(file)
    assert output.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def _write_and_fail(file):
    file.write(b"new")
    raise ZeroDivisionError


def test_a_symlink_stays_one(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    output = tmp_path / "out.csv"
    output.symlink_to(tmp_path / "elsewhere" / "real.csv")
    with replacing(output) as file:
        file.write(b"new")
    assert output.is_symlink()
    assert (tmp_path / "elsewhere" / "real.csv").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.txt", r"ends in '\.txt': pass a name that ends in \.parquet, \.jsonl or \.csv"),
        ("out", "ends in ''"),
        ("missing/out.csv", r"there is no folder .*missing: make it"),
        ("folder.csv", "is a folder: pass the name of a file"),
        ("file/out.csv", "there is no folder"),
        ("run/units/out.parquet", "is among the run's own files"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, name, said):
    run = fabricate(tmp_path / "run")  # not complete: had work begun, that would be the complaint
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=said):
        collect(run.store, Request(output=tmp_path / name))


def test_the_run_s_top_folder_may_hold_the_output(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    collect(run.store, Request(output=run.root / "verdicts.csv"))
    assert (run.root / "verdicts.csv").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    run = fabricate(tmp_path / "run")
    with pytest.raises(InputError, match="no permission"):
        collect(run.store, Request(output=tmp_path / "closed" / "out.csv"))


@pytest.fixture
def small_disk(tmp_path):
    """Yield a folder on a filesystem of 256 KiB; needs the right to mount."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            yield folder
            subprocess.run(["umount", str(folder)], check=True)
            return
    pytest.skip("may not mount a small filesystem here")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_is_said_in_one_line_and_changes_nothing(tmp_path, small_disk: Path, ending):
    claims = [os.urandom(400).hex() for _ in range(1500)]
    run = fabricate(tmp_path / "run", n_rows=1500, unit_rows=500, claims=claims)
    finish_all(run)
    output = small_disk / f"out.{ending}"
    output.write_text("old")
    with pytest.raises(NoSpace, match=r"No space left on device; nothing was changed: free some space") as error:
        collect(run.store, Request(output=output))
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    assert os.listdir(small_disk) == [output.name]
    assert output.read_text() == "old"
    output.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert collect(run.store, Request(output=output)).rows == 1500
