"""Virtual environments of other engines, and running a script in one."""

import json
import os
import signal
import site
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_S = 900
"""An installation or a run that takes longer is given up."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another engine: the script that runs it, and how its environment comes about."""

    name: str
    script: str
    package: str | None
    """To be installed from PyPI; None: the environment must stand already."""
    borrows: bool = False
    """Whether it computes with this interpreter's torch and transformers."""
    building: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for its installation: what is not needed of it need not be compiled."""


class Skipped(Exception):
    """A rival can't be measured here, with the reason."""


def interpreter(rival: Rival, environments: Path) -> Path:
    """Return the rival's Python; make its environment first, once, where that is possible.

    Raises:
        Skipped: the environment can't be made, or doesn't stand.
    """
    folder = environments / rival.name
    python = folder / "bin" / "python"
    done = folder / "installed"
    if rival.package is None:
        if not python.exists():
            raise Skipped(f"no environment {folder}")
        return python
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        if rival.borrows:
            _borrow(folder)
        _checked([str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", rival.package], rival.building)
        done.touch()
    return python


def run(rival: Rival, request: dict[str, Any], *, environments: Path, scratch: Path) -> dict[str, Any]:
    """Run a rival's script on a request; return what it printed last.

    Raises:
        Skipped: it has no environment here, or failed.
    """
    python = interpreter(rival, environments)
    file = scratch / f"{rival.name}.json"
    file.write_text(json.dumps(request), encoding="utf-8")
    lines = _checked([str(python), str(Path(__file__).with_name(rival.script)), str(file)]).splitlines()
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _borrow(folder: Path) -> None:
    """Let an environment see this interpreter's packages behind its own."""
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")


def _checked(command: Sequence[str], settings: Mapping[str, str] = OFFLINE) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(settings)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            out, errors = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # a compiler that pip started, too
            raise Skipped(f"not done after {MOST_S} s") from None
    if process.returncode != 0:
        print(errors[-2000:], file=sys.stderr)
        raise Skipped((errors.strip().splitlines() or ["it failed without a word"])[-1][:200])
    return str(out)
