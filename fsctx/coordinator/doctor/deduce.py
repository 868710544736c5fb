"""What races, mount options and delays mean for a run. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fsctx.coordinator.doctor.findings import Finding, Level
from fsctx.coordinator.doctor.race import Form, Trial
from fsctx.coordinator.ttl import LOCAL_TTL_S, NETWORK_TTL_S
from fsctx.store import PublishForm
from fsctx.store.mounts import Mount

DELAYS_PER_TTL = 10
"""A silent agent is given up after at least so many times the longest that its beat needed to be seen."""

_NO_RACE = 0.98
"""Where one racer got this share of the names, the others hardly raced."""

_WORDS = {Form.CREATE: "exclusive create", Form.SYMLINK: "symlink", Form.LINK: "hard link"}

_OPTIONS = {
    "soft": "a mount that is soft: calls fail while the server is slow (mount it hard)",
    "softerr": "a mount that is softerr: calls fail while the server is slow (mount it hard)",
}
"""Options to mind: what the verdict says of them."""

_NOTED = {
    "nolock": "locks of files are this host's own (fsctx takes none)",
    "noac": "attributes are not cached: fresher and slower than need be",
    "nosymfollow": "symlinks are not followed (fsctx follows none)",
    "sync": "every write waits for the server: slower than need be",
    "lookupcache=none": "names are not cached: fresher and slower than need be",
}
_NOTED_BEGINNINGS = ("actimeo=", "acregmax=", "acdirmax=", "lookupcache=", "local_lock=", "vers=", "cache=")


def publish_form(simple: Mapping[Form, bool], races: Sequence[Mapping[Form, Trial]]) -> PublishForm | None:
    """Return the form by which results can be published, the usual one first; None if neither is sound."""
    sound = [form for form in Form if simple.get(form, False) and all(trials[form].is_sound for trials in races)]
    if Form.SYMLINK in sound:
        return "symlink"
    return "link" if Form.LINK in sound else None


def publication(form: PublishForm | None) -> Finding:
    """Tell how results will be published."""
    if form == "symlink":
        return Finding(check="publication", level=Level.OK, seen="by symlink")
    if form == "link":
        return Finding(
            check="publication",
            level=Level.MIND,
            seen="by hard link, as symlinks do not work",
            why="results that are published by link(2), as symlinks do not work",
        )
    return Finding(
        check="publication",
        level=Level.BAD,
        seen="neither symlink nor link",
        why="there is no way to publish a result once and for all: neither symlink nor link works without replacing",
    )


def raced(trial: Trial, *, by: str) -> Finding:
    """Tell what a race showed. Publication needs one sound form of two, so a fault of one is decided elsewhere."""
    check, what = f"race: {_WORDS[trial.form]}", f"{trial.n_names:,} names, {trial.n_racers} {by}"
    bad = Level.BAD if trial.form is Form.CREATE else Level.NOTE
    if not trial.is_supported:
        return Finding(check=check, level=bad, seen=f"not possible ({trial.error})", why=f"{check} is not possible")
    faults = ", ".join(_faults(trial))
    if not trial.is_sound:
        return Finding(check=check, level=bad, seen=f"{what}: {faults}", why=f"{_WORDS[trial.form]}: {faults}")
    if trial.orphans or trial.failed:
        return Finding(check=check, level=Level.MIND, seen=f"{what}: {faults}", why=f"calls that fail ({faults})")
    hardly = "" if trial.largest_share < _NO_RACE else ", though one won nearly all of them"
    unseen = f"; {trial.unseen:,} look empty to one host for a while" if trial.unseen else ""
    return Finding(check=check, level=Level.OK, seen=f"{what}, one winner each{hardly}{unseen}")


def _faults(trial: Trial) -> Iterator[str]:
    if trial.doubles:
        yield f"{trial.doubles:,} were won by several"
    if trial.misled:
        yield f"{trial.misled:,} do not hold what their winner wrote"
    if trial.differences:
        yield f"{trial.differences:,} are seen differently by the two hosts"
    if trial.orphans:
        yield f"{trial.orphans:,} were won by nobody"
    if trial.failed:
        yield f"{trial.failed:,} calls failed ({trial.error})"


def mounted(mount: Mount) -> list[Finding]:
    """Tell the kind of filesystem and the options that matter."""
    shared = "local to this host" if mount.is_local else "shared"
    found = [Finding(check="filesystem", level=Level.NOTE, seen=f"{mount.kind}, mounted at {mount.folder}, {shared}")]
    for option in mount.options:
        if option in _OPTIONS:
            found.append(Finding(check="mount option", level=Level.MIND, seen=option, why=_OPTIONS[option]))
        elif option in _NOTED:
            found.append(Finding(check="mount option", level=Level.NOTE, seen=f"{option}: {_NOTED[option]}"))
    noted = [option for option in mount.options if option not in _NOTED and option.startswith(_NOTED_BEGINNINGS)]
    if noted:
        found.append(Finding(check="mount option", level=Level.NOTE, seen=", ".join(noted)))
    return found


def recommended_ttl(*, is_shared: bool, delays_s: Sequence[float]) -> float:
    """Return after how long a silent agent may be given up, given how long its beats needed to be seen."""
    least_s = NETWORK_TTL_S if is_shared else LOCAL_TTL_S
    longest_s = max(delays_s, default=0.0) * DELAYS_PER_TTL
    return max(least_s, math.ceil(longest_s / 10) * 10.0)
