"""What one process of one host can find out about a folder, each probe in a few calls."""

import contextlib
import errno
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsctx.coordinator.doctor.findings import Finding, Level
from fsctx.coordinator.doctor.race import Form, attempt
from fsctx.coordinator.doctor.witness import Witness
from fsctx.errors import NoSpace
from fsctx.store.probing import ProbeSystem

LONGEST_NAME = 128
"""No name in a run is longer: an agent has its host's name, shortened; a digest's file has 64 letters and a few."""

SMALL_BYTES = 1 << 30
SMALL_INODES = 100_000

_REPLACED_BYTES = 60_000
_REPLACING_S = 0.4
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where probes work: a folder of their own, by the calls of a system, seen by another process too."""

    system: ProbeSystem
    folder: str
    witness: Witness

    def path(self, name: str) -> str:
        """Return a path in the folder."""
        return f"{self.folder}/{name}"


Probe = Callable[[Site], Finding]


@contextlib.contextmanager
def full_disk_told(folder: str) -> Iterator[None]:
    """Tell of a full disk as such: nothing can be found out on one.

    Raises:
        NoSpace: disk or quota is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(f"{folder}: {error.strerror}: free some space, then run fsctx doctor again") from None
        raise


def look(check: str, probe: Probe, site: Site) -> Finding:
    """Make one probe; an error of the filesystem is a finding too."""
    try:
        with full_disk_told(site.folder):
            return probe(site)
    except OSError as error:
        return _bad(check, f"{error.strerror or error}", f"{check} fails ({error.strerror or error})")


def exclusive_create(site: Site) -> Finding:
    """Check that a name is created once, and that who comes second changes nothing."""
    return _no_replace(site, Form.CREATE, broken=Level.BAD)


def symlink(site: Site) -> Finding:
    """Check that a symlink is made once, holds its target, and never replaces."""
    return _no_replace(site, Form.SYMLINK, broken=Level.NOTE)


def link(site: Site) -> Finding:
    """Check that a second name is given once, and never replaces."""
    return _no_replace(site, Form.LINK, broken=Level.NOTE)


def _no_replace(site: Site, form: Form, *, broken: Level) -> Finding:
    """Try a name twice. What is not there at all is no fault yet: which form publishes is decided by all findings."""
    path, check = site.path(f"once-{form}"), LABELS[form]
    try:
        attempt(site.system, form, path, "first")
        with contextlib.suppress(FileExistsError):
            attempt(site.system, form, path, "second")
            return _finding(check, broken, "a second one succeeds", f"{check} replaces what is there")
    except OSError as error:
        if error.errno in _FULL:
            raise
        return _finding(check, broken, f"not possible ({error.strerror})", f"{check} is not possible")
    found = site.system.readlink(path) if form is Form.SYMLINK else site.system.read(path).decode(errors="replace")
    if found != "first":
        return _finding(check, broken, f"afterwards it holds {found[:40]!r}", f"{check} changes what is there")
    return _ok(check, "a second one fails and changes nothing")


LABELS = {Form.CREATE: "exclusive create", Form.SYMLINK: "symlink", Form.LINK: "hard link"}


def replace(site: Site) -> Finding:
    """Check that a process that reads on and on sees a file before or after a rename over it, never between."""
    path, temporary = site.path("replaced"), site.path("replacing")
    site.system.create(path, b"0" * _REPLACED_BYTES, is_durable=False)
    site.witness.ask("follow", path=path, size=_REPLACED_BYTES, limit_s=_REPLACING_S)
    number, end_s = 0, time.monotonic() + _REPLACING_S
    try:
        while time.monotonic() < end_s:
            number += 1
            site.system.create(temporary, b"%d" % (number % 10) * _REPLACED_BYTES, is_durable=False)
            site.system.rename(temporary, path)
    finally:
        seen = site.witness.answer()
    if seen["torn"] or seen["missing"]:
        what = f"of {seen['reads']} reads {seen['torn']} saw half a file, {seen['missing']} saw none"
        return _bad("rename over a file", what, "rename is not atomic")
    return _ok("rename over a file", f"atomic: {number:,} times under {seen['reads']:,} reads")


def durable(site: Site) -> Finding:
    """Check that what is written can be made durable."""
    times = []
    for number in range(5):
        began_s = time.monotonic()
        site.system.create(site.path(f"durable-{number}"), b"x" * 4096, is_durable=True)
        times.append(time.monotonic() - began_s)
    return _ok("fsync", f"{_ms(statistics.median(times))} to write 4 kB durably")


def listing(site: Site) -> Finding:
    """Check that another process sees at once which names there are."""
    folder = site.path("listed")
    site.system.make_folder(folder)
    late = 0
    for number in range(20):
        name = f"{number}"
        site.system.create(f"{folder}/{name}", b"", is_durable=False)
        late += name not in site.witness.lists(folder)
        site.system.unlink(f"{folder}/{name}")
        late += name in site.witness.lists(folder)
    if late:
        return _mind("listing", f"{late} of 40 looks by another process were old", "listings that are old at times")
    return _ok("listing", "fresh for another process of this host")


def content(site: Site) -> Finding:
    """Check that another process sees at once what was written into a file, as heartbeats are."""
    path, late = site.path("content"), 0
    for number in range(20):
        written = f"{number:04d}".ljust(4096)
        site.system.overwrite(path, written.encode())
        late += site.witness.reads(path) != written
    if late:
        return _mind("content", f"{late} of 20 reads by another process were old", "contents that are old at times")
    return _ok("content", "fresh for another process of this host")


def long_names(site: Site) -> Finding:
    """Check that the longest names that runs have are possible."""
    name = "n" * LONGEST_NAME
    site.system.create(site.path(name), b"", is_durable=False)
    if name not in site.system.listdir(site.folder):
        return _bad("long names", f"a name of {LONGEST_NAME} letters is changed", "long names are changed")
    return _ok("long names", f"{LONGEST_NAME} letters")


def owner(site: Site) -> Finding:
    """Check that files belong to who writes them."""
    path = site.path("owned")
    site.system.create(path, b"", is_durable=False)
    uid = site.system.owner(path)
    if uid != os.geteuid():
        seen = f"files of user {os.geteuid()} belong to user {uid}"
        return _note("owner", f"{seen}: agents must run as a user who may write there")
    return _ok("owner", f"user {uid}")


def room(site: Site) -> Finding:
    """Check that there is room for a run."""
    seen = site.system.room(site.folder)
    inodes = "files not counted" if seen.free_inodes is None else f"{seen.free_inodes:,} more files"
    words = f"{seen.free_bytes / 1e9:,.1f} GB free, {inodes}"
    if seen.free_bytes < SMALL_BYTES:
        return _mind("room", words, f"little room: {seen.free_bytes / 1e9:,.1f} GB")
    if seen.free_inodes is not None and seen.free_inodes < SMALL_INODES:
        return _mind("room", words, f"room for {seen.free_inodes:,} more files only")
    return _ok("room", words)


def server_clock(site: Site) -> Finding:
    """Tell the clock that stamps files from this host's. Nothing is decided by it."""
    before_s = time.time()
    site.system.create(site.path("stamped"), b"x", is_durable=False)
    off_s = site.system.modified_s(site.path("stamped")) - before_s
    if abs(off_s) < 1.0:
        return _note("clock of files", "within 1 s of this host's")
    return _note("clock of files", f"{abs(off_s):,.1f} s {'ahead of' if off_s > 0 else 'behind'} this host's")


PROBES: dict[str, Probe] = {
    LABELS[Form.CREATE]: exclusive_create,
    LABELS[Form.SYMLINK]: symlink,
    LABELS[Form.LINK]: link,
    "rename over a file": replace,
    "fsync": durable,
    "listing": listing,
    "content": content,
    "long names": long_names,
    "owner": owner,
    "room": room,
    "clock of files": server_clock,
}


def _finding(check: str, level: Level, seen: str, why: str = "") -> Finding:
    return Finding(check=check, level=level, seen=seen, why=why)


def _ok(check: str, seen: str) -> Finding:
    return _finding(check, Level.OK, seen)


def _note(check: str, seen: str) -> Finding:
    return _finding(check, Level.NOTE, seen)


def _mind(check: str, seen: str, why: str) -> Finding:
    return _finding(check, Level.MIND, seen, why)


def _bad(check: str, seen: str, why: str) -> Finding:
    return _finding(check, Level.BAD, seen, why)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
