"""Where a node's cache is, and whether it may be used."""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fsctx.errors import InputError

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
        InputError: it is not a folder, cannot be made, is another user's, or anybody may write to it.
    """
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        seen = os.lstat(root)
        mode = os.stat(root).st_mode
    except OSError as error:
        raise InputError(f"cache folder {root}: {error.strerror}: pass --cache DIR on the node's disk") from None
    if seen.st_uid != os.getuid():
        raise InputError(f"cache folder {root} belongs to user {seen.st_uid}: pass --cache DIR, a folder of your own")
    if mode & stat.S_IWOTH:
        raise InputError(f"cache folder {root} is writable by everybody: run `chmod go-w {root}` or pass --cache DIR")
