"""What `make wheel` built: what is in it, and that it works where nothing else is. Needs an index of packages."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.package

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"

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


IN_SOURCES = (
    "pyproject.toml",
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "docs/protocol.md",
    "tests/package/test_wheel.py",
)
FOLDERS = ("fsctx", "submit_templates", "tests", "docs", "examples", "bench")


def call(*words: object, home: Path) -> str:
    """Run a program that must succeed, with all it keeps in `home`, and return what it printed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {"PIPX_HOME": f"{home}/pipx", "UV_TOOL_DIR": f"{home}/uv", "FSCTX_CACHE": f"{home}/cache"}
    environ |= {"PIPX_BIN_DIR": f"{home}/bin", "UV_TOOL_BIN_DIR": f"{home}/bin"}
    done = subprocess.run(list(map(str, words)), cwd=home, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def by_pip(wheel: Path, home: Path) -> Path:
    venv.create(home / "venv", with_pip=True)
    call(home / "venv/bin/python", "-m", "pip", "install", "-q", wheel, home=home)
    return home / "venv/bin/fsctx"


def by_pipx(wheel: Path, home: Path) -> Path:
    call(sys.executable, "-m", "pipx", "install", "--python", sys.executable, wheel, home=home)
    return home / "bin/fsctx"


def by_uv(wheel: Path, home: Path) -> Path:
    call(sys.executable, "-m", "uv", "tool", "install", "--python", sys.executable, wheel, home=home)
    return home / "bin/fsctx"


def with_the_oldest(wheel: Path, home: Path) -> Path:
    """Install the oldest packages that fsctx says it works with."""
    uv = (sys.executable, "-m", "uv")
    call(*uv, "venv", "--python", sys.executable, home / "venv", home=home)
    install = (*uv, "pip", "install", "--python", home / "venv/bin/python")
    oldest = ("--resolution", "lowest-direct", "--only-binary", ":all:")
    call(*install, *oldest, "-r", ROOT / "pyproject.toml", home=home)
    call(*install, "--no-deps", wheel, home=home)
    return home / "venv/bin/fsctx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The command as one of the installers put it into a folder of its own."""

    fsctx: Path
    home: Path

    def __call__(self, *words: object) -> str:
        return call(self.fsctx, *words, home=self.home)


def built(pattern: str) -> Path:
    found = list(DIST.glob(pattern))
    assert len(found) == 1, f"{DIST} has {len(found)} of {pattern}: run make wheel"
    return found[0]


@pytest.fixture(scope="module", params=[by_pip, by_pipx, by_uv, with_the_oldest], ids=["pip", "pipx", "uv", "oldest"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("home")
    return Installed(fsctx=request.param(built("*.whl"), home), home=home)


def test_the_wheel_has_all_that_is_read_at_run_time_and_nothing_else() -> None:
    with zipfile.ZipFile(built("*.whl")) as archive:
        names = archive.namelist()
    assert set(EXPECTED) <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fsctx"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("fsctx/tests")]


def test_the_sources_have_what_builds_and_tests_them_and_nothing_that_lay_about() -> None:
    with tarfile.open(built("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*IN_SOURCES, *(name for name in EXPECTED if "submit_templates" not in name)} <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == set(FOLDERS)
    assert not [name for name in names if "__pycache__" in name]


def test_the_command_knows_its_version_and_what_is_installed(installed: Installed) -> None:
    told = json.loads(installed("version", "--json"))
    assert built("*.whl").name.startswith(f"fsctx-{told['fsctx']}-")
    assert [name for name, is_installed in told["engines"].items() if is_installed] == ["fake"]
    assert told["packages"]["pyarrow"]
    assert told["packages"]["torch"] is None, "only the extra asks for it"


def test_a_run_is_planned_computed_collected_and_reported(installed: Installed) -> None:
    (installed.home / "claims.jsonl").write_text('{"claim": "One claim."}\n{"claim": "Another one."}\n')
    installed("plan", "claims.jsonl", "--run", "run", "--model", "fake")
    for batch in ("htcondor", "slurm", "gridengine", "local"):
        assert "fsctx" in installed("submit", "run", "--batch", batch, "-n", 1, "--dry-run")
    installed("agent", "run")
    told = json.loads(installed("collect", "run", "-o", "out.csv", "--report", "a.html", "--json"))
    assert (told["rows"], told["missing"]) == (2, 0)
    installed("report", "run", "-o", "b.html")
    assert all((installed.home / name).stat().st_size > 1000 for name in ("a.html", "b.html"))


def test_a_shell_completes_commands(installed: Installed) -> None:
    script = """
        eval "$(fsctx completion bash)"
        COMP_WORDS=(fsctx sta) COMP_CWORD=1
        _fsctx_completion fsctx
        echo "${COMPREPLY[@]}"
    """
    words = ("bash", "-c", f"PATH={installed.fsctx.parent}:$PATH\n{script}")
    assert call(*words, home=installed.home).split() == ["status"]
