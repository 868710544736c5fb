"""What is published: built, installed where nothing else is, and used there. Needs an index of packages."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.package

ROOT = Path(__file__).parents[2]

EXPECTED = (
    "fsctx/py.typed",
    "fsctx/demo/claims.jsonl",
    "fsctx/templates/builtin/fever.toml",
    "fsctx/coordinator/report/page.html.j2",
    "fsctx/coordinator/report/page.css",
    "fsctx/coordinator/report/page.js",
    "fsctx/coordinator/advise/devices.toml",
    "fsctx/submit_templates/htcondor.sub.j2",
    "fsctx/submit_templates/slurm.sh.j2",
    "fsctx/submit_templates/gridengine.sh.j2",
    "fsctx/submit_templates/local.sh.j2",
    "fsctx/submit_templates/bootstrap.py",
)


def call(*words: object, cwd: Path) -> str:
    """Run a program that must succeed, without what tests put on its path, and return what it printed."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FSCTX_CACHE")}
    environ["FSCTX_CACHE"] = str(cwd / "cache")
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_has_all_that_is_read_at_run_time_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert set(EXPECTED) <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fsctx"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("fsctx/tests")]


def test_the_wheel_works_in_a_fresh_environment_without_torch(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    call(tmp_path / "venv/bin/python", "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    fsctx = tmp_path / "venv/bin/fsctx"
    engines = json.loads(call(fsctx, "version", "--json", cwd=tmp_path))["engines"]
    assert [name for name, is_installed in engines.items() if is_installed] == ["fake"]
    (tmp_path / "claims.txt").write_text("One claim.\nAnother one.\n")
    call(fsctx, "plan", "claims.txt", "--run", "run", "--model", "fake", cwd=tmp_path)
    call(fsctx, "agent", "run", cwd=tmp_path)
    told = json.loads(call(fsctx, "collect", "run", "-o", "out.csv", "--report", "a.html", "--json", cwd=tmp_path))
    assert (told["rows"], told["missing"]) == (2, 0)
    call(fsctx, "report", "run", "-o", "b.html", cwd=tmp_path)
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.html", "b.html"))
