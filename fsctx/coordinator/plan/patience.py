"""How long a silent agent is waited for, by the kind of filesystem."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import psutil

LOCAL_TTL_S = 15.0
NETWORK_TTL_S = 60.0

_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "apfs", "ramfs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where a filesystem is mounted."""

    folder: str
    kind: str


def mounts() -> list[Mount]:
    """Return this host's mounts."""
    return [Mount(folder=p.mountpoint, kind=p.fstype) for p in psutil.disk_partitions(all=True)]


def default_ttl(root: Path, mounted: Sequence[Mount]) -> tuple[float, str]:
    """Return the time to live and the kind of filesystem it was chosen for; an unknown kind counts as shared."""
    path = PurePath(root.resolve())
    above = [mount for mount in mounted if path.is_relative_to(mount.folder)]
    kind = max(enumerate(above), key=lambda item: (len(item[1].folder), item[0]))[1].kind if above else "unknown"
    return (LOCAL_TTL_S, f"local {kind}") if kind in _LOCAL else (NETWORK_TTL_S, f"shared {kind}")
