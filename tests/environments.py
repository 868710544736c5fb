"""Environments to pack and archives to unpack: a real one made by copying, and tiny ones with a stand-in of fsctx."""

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement

import fsctx
from fsctx.coordinator.environment.archive import RECORD
from fsctx.coordinator.submit.bootstrap import bootstrap_file
from fsctx.protocol import codec, names
from fsctx.protocol.manifest import Context, Environment, ModelFile, digest_of
from fsctx.store import PosixStore

ROOT = Path(fsctx.__file__).parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
CHUNK = 100

PACKAGES = ("aiohttp", "click", "filelock", "jinja2", "msgspec", "psutil", "pyarrow", "tenacity")
"""What an agent on the fake engine imports."""

STAND_IN = """
import json, os, sys
seen = {"arguments": sys.argv[1:], "prefix": sys.prefix, "pid": os.getpid(), "cache": os.environ["FSCTX_CACHE"]}
print(json.dumps({**seen, "path": os.environ["PATH"], "base": os.path.realpath(sys.executable)}))
"""
"""What takes the agent's place in a tiny environment."""


def environment(**changed: Any) -> Environment:
    """What an environment for this interpreter says of itself."""
    soabi = sysconfig.get_config_var("SOABI")
    usual = Environment(packed="venv", python=PYTHON, soabi=soabi, unpacked_bytes=20_000, fsctx="1.0")
    return dataclasses.replace(usual, **changed)


def make_archive(path: Path, *others: tarfile.TarInfo, **changed: Any) -> Path:
    """Write the archive of a tiny environment; `others` are members that no sound one has."""
    package = f"lib/python{PYTHON}/site-packages/fsctx"
    files = {RECORD: codec.encode(environment(**changed)), f"{package}/__init__.py": b""}
    files[f"{package}/__main__.py"] = STAND_IN.encode()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in others:
            tar.addfile(member)
    return path


def register(run: Path, archive: Path, **changed: Any) -> Context:
    """Make an archive known to a folder that stands for a run, in small chunks."""
    content = archive.read_bytes()
    pieces = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
    chunks = tuple(hashlib.sha256(piece).hexdigest() for piece in pieces)
    context = Context(
        digest="",
        kind="env",
        name="tiny",
        origin=str(archive.parent),
        files=(ModelFile(path=archive.name, size_bytes=len(content), chunks=chunks),),
        chunk_bytes=CHUNK,
        environment=environment(**changed),
    )
    context = dataclasses.replace(context, digest=digest_of(context))
    store = PosixStore(run)
    store.make_folder(names.CONTEXTS)
    store.replace(names.context(context.digest), codec.encode(context))
    return context


def bootstrap(run: Path, digest: str, *options: str, python: str = BASE) -> "subprocess.CompletedProcess[str]":
    """Run the bootstrap with nothing but an interpreter: an empty environment, no PATH."""
    command = [python, "-I", str(bootstrap_file()), str(run), "--env", digest, *options]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=False)


def told(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Return what the stand-in saw."""
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def bootstrap_module() -> ModuleType:
    """Load the bootstrap as a module."""
    spec = importlib.util.spec_from_file_location("bootstrap", bootstrap_file())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_conda(folder: Path) -> Path:
    """Make what looks like a conda environment, with a copy of this interpreter and fsctx's stand-in."""
    library, python = folder / "lib" / f"python{PYTHON}", folder / "bin" / f"python{PYTHON}"
    left_out = shutil.ignore_patterns("test*", "idlelib", "*-packages", "__pycache__", "config-*", "ensurepip")
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=left_out)
    python.parent.mkdir()
    shutil.copy(BASE, python)
    (python.parent / "python").symlink_to(python.name)
    script = python.parent / "tool"
    script.write_text(f"#!{python}\nimport sys; print(sys.prefix)\n")
    script.chmod(0o755)
    site = library / "site-packages"
    (site / "fsctx").mkdir(parents=True)
    (site / "fsctx" / "__init__.py").touch()
    (site / "fsctx" / "__main__.py").write_text(STAND_IN)
    (site / "fsctx-1.0.dist-info").mkdir()
    (site / "fsctx-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fsctx\nVersion: 1.0\n")
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    (folder / "conda-meta").mkdir()
    package = {"name": "python", "version": PYTHON, "url": "", "link": {"source": "/gone", "type": 1}, "files": files}
    (folder / "conda-meta" / "python.json").write_text(json.dumps(package))
    (folder / "conda-meta" / "history").touch()
    return python


def make_venv(folder: Path, *, packages: Sequence[str] = (), is_real: bool = False) -> Path:
    """Make a virtual environment with fsctx or its stand-in, without a network, and return its interpreter."""
    subprocess.run([BASE, "-m", "venv", "--without-pip", folder], check=True)
    site = site_of(folder)
    for package in _with_needed(packages):
        _copy_package(package, site)
    if is_real:
        shutil.copytree(ROOT / "fsctx", site / "fsctx", ignore=shutil.ignore_patterns("__pycache__"))
    else:
        (site / "fsctx").mkdir()
        (site / "fsctx" / "__main__.py").write_text(STAND_IN)
    describe_package(site, "fsctx")
    write_script(folder)
    return folder / "bin" / "python"


def write_script(folder: Path) -> None:
    """Write a script as installers do: its first line has the environment's path."""
    script = folder / "bin" / "fsctx"
    script.write_text(f"#!{folder}/bin/python\nimport sys\nprint(sys.prefix)\n")
    script.chmod(0o755)


def site_of(folder: Path) -> Path:
    """Return where a virtual environment has its packages."""
    return folder / "lib" / f"python{PYTHON}" / "site-packages"


def describe_package(site: Path, name: str, **files: str) -> None:
    """Write what an installer notes of a package."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, content in files.items():
        (info / f"{file}.json").write_text(content)


def _with_needed(packages: Sequence[str]) -> set[str]:
    """Add what packages need."""
    found, left = set(), list(packages)
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            needed = map(Requirement, importlib.metadata.requires(package) or ())
            left += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def _copy_package(package: str, site: Path) -> None:
    for file in importlib.metadata.distribution(package).files or ():
        source = Path(str(file.locate()))
        if not {"..", "tests", "include"} & set(file.parts) and source.suffix != ".pyc":
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
