"""Folders on the node for what engines compile and download: shared homes make them slow and let them crash.

ROOT/engines/<k>/ belongs to one process at a time, by a lock on ROOT/pins/engines-<k>. The next process that gets it
finds what was compiled. Not under the quota: it is small, and made again where somebody removes it.
"""

import contextlib
import fcntl
from collections.abc import MutableMapping
from pathlib import Path

from fsctx.cache.folders import Folders, refusals
from fsctx.cache.pins import locked
from fsctx.errors import StoreError

FOLDERS = {
    "HF_HOME": "hub",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "VLLM_CACHE_ROOT": "vllm",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",  # what vLLM computes with on GPUs; it goes below HOME otherwise
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "other",
}
"""Variable → folder. What the user set stays."""


def keep_on_node(environ: MutableMapping[str, str], root: Path) -> None:
    """Point engines' caches to the node, for as long as this process lives. Call it before any engine is imported.

    Where the node's disk refuses, they stay where they are.

    Raises:
        InputError: the cache's folder cannot be used.
    """
    with contextlib.suppress(StoreError), refusals(root):
        Folders(root).prepare()
        folder = root / "engines" / str(_first_free(root / "pins"))
        for variable, name in FOLDERS.items():
            if not environ.get(variable):
                (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
                environ[variable] = str(folder / name)


def _first_free(pins: Path) -> int:
    """Take the first number that no live process has; the lock is never closed, so the number is ours until we end."""
    number = 0
    while True:
        try:
            locked(pins / f"engines-{number}", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            number += 1
        else:
            return number
