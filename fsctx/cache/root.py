"""Where a node's cache is, and whether it may be used."""

import os
import shlex
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fsctx.errors import InputError
from fsctx.store.mounts import mount_of, mounts

VARIABLE = "FSCTX_CACHE"
_SCRATCH = ("_CONDOR_SCRATCH_DIR", "SLURM_TMPDIR", "TMPDIR")
"""Variables by which batch systems name a job's own folder on the node's disk."""


def default_root(environ: Mapping[str, str], cache: Path | None = None) -> Path:
    """Return the folder of the cache: `cache` (the option), else `$FSCTX_CACHE`, else one per user in scratch."""
    if cache is not None or environ.get(VARIABLE):
        return (cache or Path(environ[VARIABLE])).expanduser().absolute()
    scratch = next((environ[name] for name in _SCRATCH if environ.get(name)), tempfile.gettempdir())
    return Path(scratch).absolute() / f"fsctx-{os.getuid()}"


def prepare_root(root: Path) -> None:
    """Create the folder, for its owner alone, or check the one that stands.

    Raises:
        InputError: it is not a folder, cannot be made or written, is another user's, or others may write to it.
    """
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        seen = [os.lstat(root), os.stat(root)]
    except OSError as error:
        raise InputError(f"cache folder {root}: {error.strerror}: pass --cache DIR on the node's disk") from None
    others = {one.st_uid for one in seen} - {os.geteuid()}
    if others:
        raise InputError(f"cache folder {root} belongs to user {others.pop()}: pass --cache DIR, a folder of your own")
    if seen[1].st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"cache folder {root} is writable by others: run `chmod go-w {shlex.quote(str(root))}` or pass --cache DIR"
        )
    if not os.access(root, os.W_OK | os.X_OK):
        raise InputError(f"cache folder {root} cannot be written: pass --cache DIR on the node's disk")


def network_of(root: Path) -> str | None:
    """Return the kind of filesystem that a cache is on where that is not the node's own disk: then it is no cache."""
    mount = mount_of(root, mounts())
    return None if mount.is_local else mount.kind
