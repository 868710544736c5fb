"""What an interpreter says of itself and of the environment that it belongs to."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fsctx.errors import InputError

_ASK = """
import importlib.metadata as metadata, json, os, platform, sys, sysconfig
site = sysconfig.get_path("purelib")
found = {d.metadata["Name"]: d for d in metadata.distributions(path=[site, sysconfig.get_path("platlib")])}
def is_editable(d):
    return bool(json.loads(d.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))
print(json.dumps({
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "base": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "python": "%d.%d" % sys.version_info[:2],
    "implementation": platform.python_implementation(),
    "soabi": sysconfig.get_config_var("SOABI") or "",
    "is_conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
    "sees_system": any(p.endswith("-packages") and not p.startswith(sys.prefix) for p in sys.path),
    "editable": sorted(name for name, d in found.items() if is_editable(d)),
    "fsctx": found["fsctx"].version if "fsctx" in found else None,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter and its environment."""

    prefix: str
    base_prefix: str
    base: str
    """The interpreter that a virtual environment was made with."""
    python: str
    implementation: str
    soabi: str
    is_conda: bool
    sees_system: bool
    """Whether a virtual environment also imports packages that are outside of it."""
    editable: tuple[str, ...]
    """Packages that are elsewhere, in their source trees."""
    fsctx: str | None
    """Version of the fsctx that is installed."""


def ask(python: Path) -> Interpreter:
    """Run an interpreter and let it tell.

    Raises:
        InputError: it does not run, or is no Python that can tell.
    """
    try:
        done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"--python {python} does not run ({error.strerror}): pass the path of a Python") from None
    try:
        return msgspec.convert(json.loads(done.stdout), Interpreter)
    except ValueError:  # msgspec's and json's errors alike
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"--python {python} is no Python 3.8 or newer ({said}): pass the path of one") from None
