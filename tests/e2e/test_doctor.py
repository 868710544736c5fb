"""`fsctx doctor` as processes: interrupted, waiting, and two that meet."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbeds import SHARED_FILESYSTEMS

from fsctx.protocol import names


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
