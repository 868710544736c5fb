"""What a doctor finds on filesystems that break one promise each."""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsctx.coordinator.doctor import probes
from fsctx.coordinator.doctor.findings import Finding, Level
from fsctx.coordinator.doctor.line import Line
from fsctx.coordinator.doctor.meeting import Meeting, Seat, meet, told
from fsctx.coordinator.doctor.probes import PROBES, Site, look
from fsctx.coordinator.doctor.race import Form
from fsctx.coordinator.doctor.witness import Witness, witnesses
from fsctx.errors import NoSpace, NotComplete
from fsctx.store import PosixStore
from fsctx.store.probing import ProbeSystem, Room


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with witnesses(1) as started:
        yield started[0]


class Refuses(ProbeSystem):
    """A filesystem that does not know one call."""

    def __init__(self, call: str, number: int) -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise OSError(number, os.strerror(number))

        setattr(self, call, refuse)


class CreateReplaces(ProbeSystem):
    """O_EXCL is ignored, as by NFS version 2."""

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        Path(path).write_bytes(content)


class SymlinkReplaces(ProbeSystem):
    def symlink(self, target: str, path: str) -> None:
        Path(path).unlink(missing_ok=True)
        super().symlink(target, path)


class LinkReplaces(ProbeSystem):
    def link(self, source: str, path: str) -> None:
        Path(path).unlink(missing_ok=True)
        super().link(source, path)


class LinkPretends(ProbeSystem):
    """Every link is told to have succeeded, and the first one counts: distributed GlusterFS."""

    def link(self, source: str, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            super().link(source, path)


class RenameCopies(ProbeSystem):
    """A file is written again under its new name, byte by byte, for everybody to see."""

    def rename(self, source: str, target: str) -> None:
        content = Path(source).read_bytes()
        with open(target, "wb", buffering=0) as file:
            for start in range(0, len(content), 1000):
                file.write(content[start : start + 1000])
        os.unlink(source)


class WritesLate(ProbeSystem):
    """What is rewritten in place is not seen by others."""

    def overwrite(self, path: str, content: bytes) -> None:
        if not Path(path).exists():
            super().overwrite(path, content)


class ShortNames(ProbeSystem):
    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        folder, _, name = path.rpartition("/")
        super().create(f"{folder}/{name[:60]}", content, is_durable=is_durable)


class Small(ProbeSystem):
    def __init__(self, room: Room) -> None:
        self._room = room

    def room(self, path: str) -> Room:
        return self._room


class Squashed(ProbeSystem):
    def owner(self, path: str) -> int:
        return 65534


class ClockAhead(ProbeSystem):
    def modified_s(self, path: str) -> float:
        return super().modified_s(path) + 3600.0


def probe(check: str, system: ProbeSystem, folder: Path, witness: Witness) -> Finding:
    return look(check, PROBES[check], Site(system=system, folder=str(folder), witness=witness))


@pytest.mark.parametrize("check", PROBES)
def test_a_local_disk_passes_each_probe(check: str, tmp_path: Path, witness: Witness) -> None:
    found = probe(check, ProbeSystem(), tmp_path, witness)
    assert found.level in (Level.OK, Level.NOTE), found


@pytest.mark.parametrize(
    ("check", "system", "level"),
    [
        ("exclusive create", CreateReplaces(), Level.BAD),
        ("exclusive create", Refuses("create", errno.EACCES), Level.BAD),
        ("symlink", Refuses("symlink", errno.EPERM), Level.NOTE),
        ("symlink", SymlinkReplaces(), Level.NOTE),
        ("hard link", Refuses("link", errno.EOPNOTSUPP), Level.NOTE),
        ("hard link", LinkReplaces(), Level.NOTE),
        ("hard link", LinkPretends(), Level.NOTE),
        ("rename over a file", RenameCopies(), Level.BAD),
        ("rename over a file", Refuses("rename", errno.EIO), Level.BAD),
        ("fsync", Refuses("create", errno.EINVAL), Level.BAD),
        ("content", WritesLate(), Level.MIND),
        ("long names", ShortNames(), Level.BAD),
        ("long names", Refuses("create", errno.ENAMETOOLONG), Level.BAD),
        ("owner", Squashed(), Level.NOTE),
        ("room", Small(Room(free_bytes=10**8, free_inodes=None)), Level.MIND),
        ("room", Small(Room(free_bytes=10**12, free_inodes=500)), Level.MIND),
        ("clock of files", ClockAhead(), Level.NOTE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ProbeSystem) else None,
)
def test_a_broken_promise_is_found(
    check: str, system: ProbeSystem, level: Level, tmp_path: Path, witness: Witness
) -> None:
    found = probe(check, system, tmp_path, witness)
    assert found.level is level
    assert "second one fails" not in found.seen


def test_a_clock_that_is_wrong_is_told_and_decides_nothing(tmp_path: Path, witness: Witness) -> None:
    found = probe("clock of files", ClockAhead(), tmp_path, witness)
    assert "ahead of this host's" in found.seen
    assert found.level is Level.NOTE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("check", ["exclusive create", "fsync", "rename over a file"])
def test_a_full_disk_is_told_as_such(check: str, number: int, tmp_path: Path, witness: Witness) -> None:
    with pytest.raises(NoSpace, match="free some space, then run fsctx doctor again"):
        probe(check, Refuses("create", number), tmp_path, witness)


def meeting(
    folder: Path, a: ProbeSystem, b: ProbeSystem, *, patience_s: float = 20.0, wall_b: float = 0.0
) -> dict[str, Any]:
    """Let two doctors meet, on a thread each; return what each found, or how it ended."""
    found: dict[str, Any] = {}

    def sit(side: Any, system: ProbeSystem, ahead_s: float) -> None:
        line = Line(store=PosixStore(folder, system=system), side=side, other="the other doctor", patience_s=patience_s)
        seat = Seat(line=line, system=system, folder=str(folder), batch_names=20, wall=lambda: 1e9 + ahead_s)
        try:
            found[side] = meet(seat)
        except NotComplete as error:
            found[side] = error

    threads = [threading.Thread(target=sit, args=args) for args in (("a", a, 0.0), ("b", b, wall_b))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def level_of(met: Meeting, check: str) -> Level:
    return next(finding.level for finding in told(met) if finding.check == check)


def test_two_doctors_on_a_sound_filesystem_find_the_same(tmp_path: Path) -> None:
    found = meeting(tmp_path, ProbeSystem(), ProbeSystem())
    a, b = found["a"], found["b"]
    assert a.trials == b.trials
    assert all(trial.is_sound for trial in a.trials.values())
    assert [trial.n_names for trial in a.trials.values()] == [120, 60, 60]
    assert a.is_same_host
    assert a.absent_s is not None
    assert a.absent_s < 20


def test_a_host_whose_exclusive_creation_replaces_is_found_out(tmp_path: Path) -> None:
    met = meeting(tmp_path, ProbeSystem(), CreateReplaces())["a"]
    assert not met.trials[Form.CREATE].is_sound
    assert level_of(met, "race: exclusive create") is Level.BAD


def test_links_that_two_hosts_are_told_to_have_made_are_found_out(tmp_path: Path) -> None:
    met = meeting(tmp_path, LinkPretends(), LinkPretends())["a"]
    assert met.trials[Form.LINK].doubles > 0
    assert met.trials[Form.SYMLINK].is_sound


def test_symlinks_that_replace_are_found_out(tmp_path: Path) -> None:
    met = meeting(tmp_path, ProbeSystem(), SymlinkReplaces())["a"]
    assert not met.trials[Form.SYMLINK].is_sound


def test_the_difference_of_two_clocks_is_told_with_its_error(tmp_path: Path) -> None:
    met = meeting(tmp_path, ProbeSystem(), ProbeSystem(), wall_b=7200.0)["a"]
    assert met.offset.ahead_s == pytest.approx(7200.0, abs=5.0)
    assert "7200" in next(finding.seen for finding in told(met) if finding.check == "clock, two hosts")


def test_a_doctor_that_is_left_alone_says_so(tmp_path: Path) -> None:
    line = Line(store=PosixStore(tmp_path), side="a", other="the other doctor", patience_s=0.05)
    with pytest.raises(NotComplete, match=r"the other doctor fell silent .*: run fsctx doctor on both hosts again"):
        meet(Seat(line=line, system=ProbeSystem(), folder=str(tmp_path)))


def test_the_longest_name_covers_those_that_runs_have() -> None:
    from fsctx.agent.host import agent_name
    from fsctx.protocol import names
    from fsctx.protocol.names import LeaseId
    from fsctx.store.base import TEMPORARY

    temporary = f"{TEMPORARY}{'0' * 8}"
    written = [
        names.context("0" * 64) + temporary,
        names.result(0, LeaseId(99999999, 10**9)) + temporary,
        names.published(0, 99999999) + temporary,
        agent_name(),
    ]
    assert max(len(part) for name in written for part in name.split("/")) < probes.LONGEST_NAME
