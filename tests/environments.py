"""Small environments to pack: a virtual environment with what an agent on the fake engine imports, made by copying."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fsctx

PACKAGES = ("click", "filelock", "jinja2", "markupsafe", "msgspec", "psutil", "pyarrow", "tenacity")
ROOT = Path(fsctx.__file__).parents[1]


def make_venv(folder: Path) -> Path:
    """Make one with fsctx in it, without a network, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python3.*/site-packages"))
    for package in PACKAGES:
        _copy_package(package, site)
    shutil.copytree(ROOT / "fsctx", site / "fsctx", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "submit_templates", site / "fsctx" / "submit_templates", dirs_exist_ok=True)
    info = site / f"fsctx-{fsctx.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fsctx\nVersion: {fsctx.__version__}\n")
    script = folder / "bin" / "fsctx"
    script.write_text(f"#!{folder}/bin/python\nimport fsctx.cli\nfsctx.cli.main()\n")
    script.chmod(0o755)
    return folder / "bin" / "python"


def _copy_package(package: str, site: Path) -> None:
    for file in importlib.metadata.distribution(package).files or ():
        source = Path(str(file.locate()))
        if ".." not in file.parts and "tests" not in file.parts and source.suffix not in (".h", ".pyc", ".a"):
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
