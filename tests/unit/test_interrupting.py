"""Ctrl-C at any moment of a command: no traceback, exit code 130."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def call(*words: str, first_on_path: Path) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(first_on_path), str(ROOT)])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("start", [("-m", "fsctx"), ("-c", "from fsctx.__main__ import main; main()")])
def test_while_the_command_line_is_imported(tmp_path: Path, start: tuple[str, ...]) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED)
    done = call(*start, "version", first_on_path=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_next_to_nothing_is_imported_before_that_is_looked_after(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import fsctx.__main__; print(*sorted(set(sys.modules) - before))"
    done = call("-S", "-c", code, first_on_path=tmp_path)
    assert done.stdout.split() == ["fsctx", "fsctx.__main__", "fsctx.errors"]


def test_while_a_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text(INTERRUPTED)
    done = call("-m", "fsctx", "status", str(tmp_path), first_on_path=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "fsctx: interrupted")


def test_after_its_last_word(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    )
    done = call("-m", "fsctx", "version", first_on_path=tmp_path)
    assert done.returncode == -2  # by the signal, which a shell tells as 130
    assert (done.stdout[:5], done.stderr) == ("fsctx", "")
