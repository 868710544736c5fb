"""Which filesystem a folder is on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import psutil

_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "apfs", "ramfs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where a filesystem is mounted, and how."""

    folder: str
    kind: str
    options: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether no other host can have it mounted. An unknown kind counts as shared."""
        return self.kind in _LOCAL


UNKNOWN = Mount(folder="/", kind="unknown")


def mounts() -> list[Mount]:
    """Return this host's mounts."""
    found = psutil.disk_partitions(all=True)
    return [Mount(folder=p.mountpoint, kind=p.fstype, options=tuple(p.opts.split(","))) for p in found]


def mount_of(folder: Path, mounted: Sequence[Mount]) -> Mount:
    """Return the mount that a folder is on, `UNKNOWN` if none is; of mounts one upon the other the last one counts."""
    path = PurePath(folder.resolve())
    above = [mount for mount in mounted if path.is_relative_to(mount.folder)]
    return max(enumerate(above), key=lambda item: (len(item[1].folder), item[0]))[1] if above else UNKNOWN
