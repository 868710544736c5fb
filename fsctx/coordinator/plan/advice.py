"""What is known of the filesystem that a run is planned on: by its kind, or by what `fsctx doctor` found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from fsctx.coordinator.ttl import default_ttl
from fsctx.errors import InputError
from fsctx.protocol.facts import Facts, read_facts
from fsctx.store import PosixStore, PublishForm
from fsctx.store.mounts import Mount, mount_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How to plan on a filesystem."""

    ttl_s: float
    kind: str
    """Of filesystem, in words."""
    publish: PublishForm = "symlink"
    notes: tuple[str, ...] = ()


def advise(root: Path, mounted: Sequence[Mount], *, is_new: bool) -> Advice:
    """Return how to plan a run at `root`; one that stands already is not refused any more.

    Raises:
        InputError: doctor found the filesystem unsafe, or a newer fsctx wrote its facts.
    """
    ttl_s, kind = default_ttl(root, mounted)
    known = find_facts(root, mount_of(root, mounted))
    if known is None:
        return Advice(ttl_s=ttl_s, kind=kind)
    folder, facts = known
    if is_new and not facts.is_safe:
        raise InputError(
            f"{root} is on a filesystem that fsctx doctor found unsafe ({'; '.join(facts.why)}): plan on another one, "
            f"or have it mended and run `fsctx doctor {folder}` again"
        )
    how = "; results are published by link(2), as this filesystem has no symlinks" if facts.publish == "link" else ""
    note = f"planned by what fsctx doctor found in {folder} on {facts.date[:10]}{how}"
    return Advice(ttl_s=facts.ttl_s, kind=kind, publish=facts.publish, notes=(note,))


def find_facts(root: Path, mount: Mount) -> tuple[Path, Facts] | None:
    """Return what doctor left in the folder or the nearest one above it on the same filesystem."""
    path = root.resolve()
    for folder in (path, *path.parents):
        if not PurePath(folder).is_relative_to(mount.folder):
            return None
        facts = read_facts(PosixStore(folder))
        if facts is not None and facts.kind == mount.kind:
            return folder, facts
    return None
