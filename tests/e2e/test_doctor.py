"""`fsctx doctor` as processes: interrupted, waiting, and two that meet."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fabricate import fabricate
from testbeds import SHARED_FILESYSTEMS

from fsctx.coordinator.submit.record import read_submission
from fsctx.protocol import agents, names
from fsctx.protocol.facts import Facts, read_facts, write_facts


def started(*arguments: str | Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fsctx", "doctor", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_doctor_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    process = started(tmp_path, "--wait", "60")
    assert process.stderr is not None
    assert "--peer" in process.stderr.readline()
    assert any(name.startswith("fsctx-doctor-") for name in os.listdir(tmp_path))
    process.send_signal(number)
    assert process.wait(timeout=30) == 130
    assert "Traceback" not in process.stderr.read()
    process.communicate()
    assert os.listdir(tmp_path) == []


def test_waiting_in_vain_for_a_second_host_is_not_complete(tmp_path: Path) -> None:
    process = started(tmp_path, "--wait", "1")
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "verdict: safe" in said
    assert "no second host came" in errors


def meet_on(first: Path, second: Path, root: Path) -> dict[str, Any]:
    waiting, joining = started(first, "--wait", "60", "--json"), started(second, "--peer")
    said, errors = waiting.communicate(timeout=180)
    joined = joining.communicate(timeout=60)
    assert (waiting.returncode, joining.returncode) == (0, 0), (errors, joined)
    assert "which prints the result" in joined[0]
    assert os.listdir(root) == [names.DOCTOR]
    document: dict[str, Any] = json.loads(said)
    return {check["check"]: check for check in document["checks"]}


def test_two_doctors_meet_in_a_folder(tmp_path: Path) -> None:
    checks = meet_on(tmp_path, tmp_path, tmp_path)
    assert "says nothing of other hosts" in checks["second host"]["seen"]
    assert checks["race: exclusive create"]["level"] == "ok"
    assert "2 hosts" in checks["race: exclusive create"]["seen"]


def test_two_pilots_look_together_and_leave_what_agents_go_by(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4)
    submit = [sys.executable, "-m", "fsctx", "submit", str(run.root), "--batch", "local", "-n", "2", "--doctor"]
    said = subprocess.run(submit, capture_output=True, text=True, check=True).stdout
    submission = read_submission(run.store, said.split(" as ")[1].split(";")[0])
    assert submission is not None
    pilots = [psutil.Process(pilot.process.pid) for pilot in submission.pilots if pilot.process]
    assert psutil.wait_procs(pilots, timeout=180)[1] == []
    told = sorted((run.root / names.LOGS).glob("*"), key=lambda log: "verdict" in log.read_text())
    assert ["verdict" in log.read_text() for log in told] == [False, True]
    assert "2 hosts" in told[1].read_text()
    found = read_facts(run.store)
    assert found is not None
    assert found.is_safe
    assert not [name for name in os.listdir(run.root) if name.startswith("fsctx-doctor-")]


def test_an_agent_does_not_work_where_two_hosts_found_it_unsafe(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4)
    facts = {"date": "2026-11-30", "version": "0", "host": "a", "peer": "b", "kind": "nfs4", "publish": "symlink"}
    write_facts(
        run.store, Facts(**facts, is_safe=False, why=("names have two winners",), has_symlinks=True, ttl_s=60.0)
    )
    agent = [sys.executable, "-m", "fsctx", "agent", str(run.root), "--engine", "fake"]
    done = subprocess.run(agent, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "unsafe (names have two winners)" in done.stderr
    assert agents.list_agents(run.store) == []


@pytest.fixture
def stale_bed(tmp_path: Path) -> Iterator[Path]:
    """Two mounts of one folder, each with names and attributes that are old for three seconds."""
    pytest.importorskip("mfusepy", reason="needs mfusepy for FUSE mounts")
    script = SHARED_FILESYSTEMS / "stale_fuse.py"
    if not script.exists() or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs the test bed stale_fuse.py and /dev/fuse")
    bed = [sys.executable, str(script)]
    subprocess.run([*bed, "up", str(tmp_path), "--n", "2", "--ttl", "3", "--neg", "3"], check=True, capture_output=True)
    yield tmp_path
    subprocess.run([*bed, "down", str(tmp_path)], check=True, capture_output=True)


@pytest.mark.slow
def test_two_clients_with_stale_caches_are_safe_and_their_delays_are_measured(stale_bed: Path) -> None:
    checks = meet_on(stale_bed / "m1", stale_bed / "m2", stale_bed / "backing")
    assert {check["level"] for check in checks.values()} <= {"ok", "note"}
    assert any(word in checks["absent name, two hosts"]["seen"] for word in ("opened 2.", "opened 3."))
