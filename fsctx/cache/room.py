"""Room in a node's cache: a quota, a floor of free space, and the longest unused out first."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsctx.cache.chunks import FILES
from fsctx.cache.folders import Folders
from fsctx.cache.layout import Kind
from fsctx.errors import InputError, NoSpace

VARIABLE = "FSCTX_CACHE_QUOTA"
_FLOOR_BYTES = 1 << 30
_FLOOR_PART = 50
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def quota(environ: Mapping[str, str], asked: str | None = None) -> int | None:
    """Return the quota: `asked` (the option), else `$FSCTX_CACHE_QUOTA`, else none."""
    text = asked or environ.get(VARIABLE)
    return parse_size(text) if text else None


def parse_size(text: str) -> int:
    """Read a size such as `20GB`, `1.5 TiB` or `500000000`.

    Raises:
        InputError: it is none.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"the size {text!r} is none: write it as 20GB or 20GiB")
    return int(float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the cache may take of the disk."""

    folders: Folders
    quota_bytes: int | None

    def check_quota(self, name: str, size_bytes: int) -> None:
        """Refuse what can never fit.

        Raises:
            InputError: it is larger than the quota.
        """
        if self.quota_bytes is not None and size_bytes > self.quota_bytes:
            raise InputError(
                f"{name} has {size_bytes / 1e9:.3f} GB and the cache's quota is {self.quota_bytes / 1e9:.3f} GB:"
                " pass a larger --cache-quota, or --context agnostic"
            )

    @contextmanager
    def made(self, kind: Kind, digest: str, size_bytes: int) -> Iterator[None]:
        """Have room for a folder that is to have this size; take the room within the block.

        Raises:
            NoSpace: even without all that may go, there is not enough; then nothing goes.
        """
        with self.folders.locked(self.folders.layout.room_lock):
            self._make(kind, digest, size_bytes)
            yield

    def _make(self, kind: Kind, digest: str, size_bytes: int) -> None:
        entries = self.folders.entries()
        others = [entry for entry in entries if (entry.kind, entry.digest) != (kind, digest)]
        used = sum(entry.size_bytes for entry in others)
        to_come = size_bytes - allocated_bytes(self.folders.layout.incoming(kind, digest) / FILES)
        spare = sum(entry.size_bytes for entry in others if not entry.is_pinned)
        if (problem := self._problem(used + size_bytes - spare, to_come, spare)) is not None:
            raise NoSpace(problem)
        while (problem := self._problem(used + size_bytes, to_come, 0)) is not None:
            gone = next((entry for entry in others if self.folders.evict(entry)), None)
            if gone is None:
                raise NoSpace(problem)
            others.remove(gone)
            used -= gone.size_bytes

    def _problem(self, used: int, to_come: int, spare: int) -> str | None:
        """Return what is wrong where the cache holds `used` and as much as `spare` will be free besides."""
        root, advice = self.folders.root, "free some space (`fsctx cache prune`), or pass --cache DIR on another disk"
        if self.quota_bytes is not None and used > self.quota_bytes:
            return (
                f"{root} would hold {used / 1e9:.3f} GB, more than its quota of {self.quota_bytes / 1e9:.3f} GB,"
                " and all of it is in use: pass a larger --cache-quota"
            )
        disk = os.statvfs(root)
        free = disk.f_bavail * disk.f_frsize + spare
        floor = min(_FLOOR_BYTES, disk.f_blocks * disk.f_frsize // _FLOOR_PART)
        if to_come > 0 and free - to_come < floor:
            return (
                f"{root} has {free / 1e9:.2f} GB free and {to_come / 1e9:.2f} GB are to come"
                f" ({floor / 1e9:.2f} GB are left alone): {advice}"
            )
        return None


def allocated_bytes(folder: Path) -> int:
    """Return what a tree takes of the disk."""
    return sum(512 * os.lstat(path).st_blocks for path in folder.rglob("*")) if folder.is_dir() else 0
