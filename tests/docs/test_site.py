"""The documentation's site: nothing is lost on the way into it, and it builds without a warning."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsctx.cli import COMMANDS

ROOT = Path(__file__).parents[2]
ZENSICAL = shutil.which("zensical", path=str(Path(sys.executable).parent))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    subprocess.run([sys.executable, ROOT / "docs/pages.py", folder / "docs"], check=True, env={"PYTHONPATH": str(ROOT)})
    return folder


def test_every_page_and_every_command_is_there(built: Path) -> None:
    configuration = (built / "zensical.toml").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert not [page for page in pages if f'"{page}"' not in configuration]
    assert pages < {path.name for path in (built / "docs").glob("*.md")}
    reference = (built / "docs/command-line.md").read_text()
    assert not [name for name in COMMANDS if f"\n## fsctx {name}\n" not in reference]
    assert "## fsctx cache prune" in reference


def test_every_decision_is_listed(built: Path) -> None:
    listed = (built / "docs/decisions/index.md").read_text()
    assert not [path for path in (ROOT / "docs/decisions").glob("*.md") if f"({path.name})" not in listed]


@pytest.mark.slow
@pytest.mark.skipif(ZENSICAL is None, reason="zensical is not installed here: make docs")
def test_the_site_builds_without_a_warning_and_needs_no_network_to_be_read(built: Path) -> None:
    done = subprocess.run([str(ZENSICAL), "build", "--strict"], cwd=built, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (built / "site/first-run.html").read_text()
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.?https?://[^>]*", page)
