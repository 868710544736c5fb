"""How many tokens a batch may have, learnt by one that did not fit: for whoever loads the model there next."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path


class BatchNotes:
    """One small file for each model, device, precision and engine. A disk that refuses only costs the memory."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "batches"

    def read(self, key: Sequence[str]) -> int | None:
        """Return the tokens that were noted; None if nothing was, or nothing that is a number."""
        with contextlib.suppress(OSError, ValueError):
            return max(1, int(self._path(key).read_text(encoding="ascii")))
        return None

    def write(self, key: Sequence[str], tokens: int) -> None:
        """Note how many tokens a batch may have."""
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.write_text(str(tokens), encoding="ascii")
            partial.replace(path)

    def _path(self, key: Sequence[str]) -> Path:
        return self._folder / hashlib.sha256("\0".join(key).encode()).hexdigest()
