"""Packing: a virtual or conda environment becomes one archive that unpacks anywhere.

venv-pack and conda-pack do the work. What they let pass and would fail on the nodes is refused here first; the
interpreter of a virtual environment is left out, as a node has its own, to which the bootstrap points.
"""

import contextlib
import errno
import io
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsctx.coordinator.environment.archive import RECORD
from fsctx.coordinator.environment.interpreter import Interpreter, ask
from fsctx.errors import FsctxError, InputError, NoSpace, StoreError
from fsctx.protocol import codec
from fsctx.protocol.manifest import Environment

_BLOCK_BYTES = 4096
_INTERPRETER = re.compile(r"bin/python[\d.]*|pyvenv\.cfg")
_MOST_SHOWN = 3
_REWRITTEN = ("bin/", "conda-meta/")
"""Files in these folders are mended by the tools."""

Progress = Callable[[int, int], None]
"""Takes the files that are packed, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An archive that was made."""

    archive: str
    size_bytes: int
    environment: Environment
    files: int
    notes: tuple[str, ...]
    """What the nodes must have, and what may not work there."""


def pack(output: Path, python: Path, *, progress: Progress) -> Packed:
    """Pack the environment of an interpreter.

    Raises:
        InputError: it cannot be moved, or the archive cannot be written where it should be.
        NoSpace: a disk is full.
    """
    _check_output(output)
    interpreter = ask(python)
    _check(interpreter)
    packer = _packer(interpreter)
    packer.files = [file for file in packer.files if interpreter.is_conda or not _INTERPRETER.fullmatch(file.target)]
    files = [(Path(file.source), file.target) for file in packer.files]
    _check_links(interpreter.prefix, files)
    environment = _environment(interpreter, files)
    _write(packer, output, environment, progress)
    return Packed(
        archive=str(output),
        size_bytes=output.stat().st_size,
        environment=environment,
        files=len(files),
        notes=tuple(_notes(interpreter, files)),
    )


def _check_output(output: Path) -> None:
    if not output.name.endswith(".tar.gz"):
        raise InputError(f"{output}: the archive is a .tar.gz, which any Python can unpack: name it so")
    if output.exists():
        raise InputError(f"{output} exists: choose another name, or remove it first")
    if not output.parent.is_dir():
        raise InputError(f"{output.parent} is no folder: make it, or choose another")


def _check(interpreter: Interpreter) -> None:
    """Refuse an environment that would not work elsewhere."""
    where = interpreter.prefix
    if not interpreter.is_conda and interpreter.prefix == interpreter.base_prefix:
        raise InputError(f"{where} is neither a virtual nor a conda environment: pass --python /path/of/one/bin/python")
    if interpreter.implementation != "CPython" or not interpreter.soabi:
        raise InputError(f"{where} runs {interpreter.implementation}: make an environment with CPython")
    if interpreter.editable:
        names = ", ".join(interpreter.editable)
        raise InputError(f"{where}: installed in editable form, so not in it: {names}: install them without -e")
    if interpreter.fsctx is None:
        raise InputError(f"{where} has no fsctx, which the nodes are to run: install it there")
    if interpreter.sees_system and not interpreter.is_conda:
        raise InputError(
            f"{where} also uses packages outside of it, which would stay behind:"
            " make one without --system-site-packages"
        )


def _packer(interpreter: Interpreter) -> Any:
    """Return the tool's own object; `files` is the list of what it will pack."""
    with _tool_errors(interpreter.prefix):
        if interpreter.is_conda:
            from conda_pack import CondaEnv

            return CondaEnv.from_prefix(interpreter.prefix, on_missing_cache="ignore")  # paths are mended all the same
        from venv_pack import Env

        return Env(interpreter.prefix)


@contextlib.contextmanager
def _tool_errors(prefix: str) -> Iterator[None]:
    """Turn what the packing tools raise into one line; they also print, which nobody asked for."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except ImportError as error:
        raise InputError(f"{error.name} is not installed: pip install 'fsctx[env]'") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"no room to pack {prefix}: free some space, or set TMPDIR to another disk") from None
        raise StoreError(
            f"{prefix} could not be packed ({error.filename or 'a file'}: {error.strerror}): try again"
        ) from None
    except FsctxError:
        raise
    except Exception as error:  # noqa: BLE001 - each tool has its own, without a common base
        said = " ".join(str(error).split())
        raise InputError(f"{prefix} cannot be packed: {said}") from None


def _check_links(prefix: str, files: Sequence[tuple[Path, str]]) -> None:
    """Refuse links that would lead nowhere on the nodes, or out of the environment."""
    bad = [target for source, target in files if source.is_symlink() and _leads_out(target, os.readlink(source))]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise InputError(
            f"{prefix}/{bad[0]}{more}: links by an absolute path or out of the environment, which would break"
            " on the nodes: replace them with what they link to"
        )


def _leads_out(target: str, link: str) -> bool:
    return os.path.isabs(link) or os.path.normpath(os.path.join(os.path.dirname(target), link)).startswith("..")


def _environment(interpreter: Interpreter, files: Sequence[tuple[Path, str]]) -> Environment:
    sizes = (source.lstat().st_size for source, _ in files)
    assert interpreter.fsctx is not None  # checked before
    return Environment(
        packed="conda" if interpreter.is_conda else "venv",
        python=interpreter.python,
        soabi=interpreter.soabi,
        unpacked_bytes=sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes),
        fsctx=interpreter.fsctx,
    )


def _write(packer: Any, output: Path, environment: Environment, progress: Progress) -> None:
    """Write the archive, the record first in it; it gets its name when it is whole and durable."""
    new = output.with_name(f".{secrets.token_hex(4)}.{output.name}")
    with _tool_errors(packer.prefix), tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / RECORD
        record.write_bytes(codec.encode_pretty(environment))
        packer.files.insert(0, type(packer.files[0])(str(record), RECORD))
        packer.files = _Told(packer.files, progress)
        try:
            packer.pack(output=str(new), format="tar.gz", force=True)
            with open(new, "rb") as file:
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.replace(new, output)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


class _Told(list[Any]):
    """A list that tells how far it was gone through: the tools have no other way to say."""

    def __init__(self, files: Sequence[Any], progress: Progress) -> None:
        super().__init__(files)
        self._progress = progress

    def __iter__(self) -> Iterator[Any]:
        for n_before, file in enumerate(super().__iter__()):
            self._progress(n_before, len(self))
            yield file
        self._progress(len(self), len(self))


def _notes(interpreter: Interpreter, files: Sequence[tuple[Path, str]]) -> Iterator[str]:
    if not interpreter.is_conda:
        yield (
            f"its interpreter stays behind: a node needs Python {interpreter.python} ({interpreter.soabi}),"
            f" in its PATH, or the one that starts the bootstrap; here that is {interpreter.base}"
        )
        mentions = list(_mentions(interpreter.prefix.encode(), files))
        if mentions:
            more = f" and {len(mentions) - _MOST_SHOWN} more" if len(mentions) > _MOST_SHOWN else ""
            yield (
                f"compiled-in paths: {', '.join(mentions[:_MOST_SHOWN])}{more} mention {interpreter.prefix},"
                " which will not be there"
            )


def _mentions(prefix: bytes, files: Sequence[tuple[Path, str]]) -> Iterator[str]:
    """List files that hold the environment's path; bytecode has it for tracebacks alone, and scripts are mended."""
    for source, target in files:
        is_mended = target.startswith(_REWRITTEN) or target.endswith(".pyc")
        if not is_mended and source.is_file() and not source.is_symlink() and prefix in source.read_bytes():
            yield target
