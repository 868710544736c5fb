"""The run folder's disk becomes full, read-only, or is gone."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash.fleet import (
    agent,
    assert_done_once,
    end_of,
    faulty_agent,
    fingerprints,
    finish,
    is_frozen,
    quick_run,
    sessions,
    wait_for,
    watched,
)
from e2e.running import n_published

from fsctx.errors import NoSpace
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState

SLOW = "fake:rows_per_s=12,batch_tokens=8"
"""All of a run's units take ten seconds: time enough for what must happen to the disk before the last one."""


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Let a disk be full."""
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (64 << 20))
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def bound_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that can be made read-only: bound to another one."""
    folder = tmp_path / "bound"
    folder.mkdir()
    if subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, mode: str) -> bool:
    """Make a mount `ro` or `rw`; False where a file is just being written."""
    command = ["mount", "-o", f"remount,bind,{mode}", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_an_agent_killed_while_the_disk_is_full_costs_nothing_but_time(small_disk: Path) -> None:
    run = quick_run(small_disk / "run")
    with watched(agent(run, engine=SLOW)) as victim:
        wait_for(lambda: n_published(run) >= 1)
        with filled(small_disk):
            assert victim.stderr is not None
            complaint = victim.stderr.readline()
            before = fingerprints(run)
            victim.kill()
    assert "No space left" in complaint
    finish(run)
    assert before.items() <= fingerprints(run).items()
    shutil.copytree(run.root, small_disk.parent / "run", symlinks=True)
    assert_done_once(run)


def test_an_agent_told_to_leave_on_a_full_disk_leaves_in_time_with_one_line(small_disk: Path) -> None:
    run = quick_run(small_disk / "run")
    with watched(agent(run, engine=SLOW)) as victim:
        wait_for(lambda: n_published(run) >= 1)
        with filled(small_disk):
            assert victim.stderr is not None
            victim.stderr.readline()
            victim.terminate()
            code, said = end_of(victim)
    assert code == NoSpace.exit_code, said
    assert "Traceback" not in said
    assert "No space left" in said.splitlines()[-1]
    finish(run)
    assert_done_once(run)


def test_an_agent_waits_while_the_filesystem_is_read_only(bound_folder: Path) -> None:
    run = quick_run(bound_folder / "run")
    with watched(agent(run, engine=SLOW)) as waiting:
        wait_for(lambda: n_published(run) >= 1)
        wait_for(lambda: remount(bound_folder, "ro"))
        assert waiting.stderr is not None
        complaint = waiting.stderr.readline()
        assert remount(bound_folder, "rw")
        code, said = end_of(waiting)
    assert code == 0, said
    assert "Read-only file system" in complaint
    assert_done_once(run)


def test_an_agent_says_what_it_waits_for_where_a_part_of_the_run_is_missing(tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run")
    (run.root / names.UNITS).rename(tmp_path / "elsewhere")
    with watched(agent(run)) as waiting:
        assert waiting.stderr is not None
        told = waiting.stderr.readline()
        (tmp_path / "elsewhere").rename(run.root / names.UNITS)
        code, said = end_of(waiting)
    assert code == 0, said
    assert told.startswith(f"waiting, as the filesystem refuses: {run.root}/{names.UNITS}/"), told  # any of its shards
    assert "No such file" in told
    assert_done_once(run)


def test_an_agent_whose_run_was_removed_ends_soon_with_one_clear_line(tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run")
    with watched(agent(run, engine=SLOW)) as orphan:
        wait_for(lambda: n_published(run) >= 1)
        run.root.rename(tmp_path / "gone")
        shutil.rmtree(tmp_path / "gone")
        code, said = end_of(orphan)
    assert code == 2, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"fsctx: {run.root} is gone")
    assert not run.root.exists()


def test_an_idle_agent_whose_run_was_removed_ends_soon_too(tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run", ttl_s=6.0, n_rows=20)
    with watched(faulty_agent(run, "create results/ 1 before stop")) as frozen:
        wait_for(lambda: is_frozen(frozen))
        with watched(agent(run)) as idle:
            wait_for(lambda: AgentState.WAITING in {session.state for session in sessions(run)})
            run.root.rename(tmp_path / "gone")
            code, said = end_of(idle)
    assert code == 2, said
    assert said.splitlines()[-1].startswith(f"fsctx: {run.root} is gone")
