"""How long a silent agent is waited for, by the filesystem that the run is on."""

from collections.abc import Sequence
from pathlib import Path

from fsctx.store.mounts import Mount, mount_of

LOCAL_TTL_S = 15.0
NETWORK_TTL_S = 60.0


def default_ttl(folder: Path, mounted: Sequence[Mount]) -> tuple[float, str]:
    """Return the time to live and the kind of filesystem it was chosen for."""
    mount = mount_of(folder, mounted)
    return (LOCAL_TTL_S, f"local {mount.kind}") if mount.is_local else (NETWORK_TTL_S, f"shared {mount.kind}")
