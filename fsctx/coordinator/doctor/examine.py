"""One host's examination: a folder of its own in the folder looked at, probes, races; nothing is left behind."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsctx.coordinator.doctor import deduce
from fsctx.coordinator.doctor.findings import Finding, Level, Report
from fsctx.coordinator.doctor.joining import SCRATCH
from fsctx.coordinator.doctor.meeting import Meeting, told
from fsctx.coordinator.doctor.probes import LABELS, PROBES, Site, full_disk_told, look
from fsctx.coordinator.doctor.race import Form, Trial, judge, owners
from fsctx.coordinator.doctor.witness import Witness, witnesses
from fsctx.errors import InputError, StoreError
from fsctx.protocol.processes import host_name
from fsctx.store.mounts import Mount
from fsctx.store.probing import ProbeSystem

RACERS = 4
NAMES = 2000
"""So many are raced for; half of them by forms that cost more calls."""

LIMIT_S = 3.0
"""A race ends after so long, on a filesystem too slow for all names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What one host found."""

    findings: tuple[Finding, ...]
    trials: dict[Form, Trial]

    @property
    def simple(self) -> dict[Form, bool]:
        """Whether each form did what it should with nobody else around."""
        levels = {finding.check: finding.level for finding in self.findings}
        return {form: levels[label] is Level.OK for form, label in LABELS.items()}


@contextlib.contextmanager
def scratch(root: Path, system: ProbeSystem) -> Iterator[str]:
    """Make a folder to work in; it is gone afterwards, however that ends.

    Raises:
        InputError: there is no such folder, or this user may not write there.
    """
    folder = f"{root}/{SCRATCH}{secrets.token_hex(4)}"
    _check_usable(root, folder, system)
    try:
        yield folder
    finally:
        _remove(system, folder)


def _check_usable(root: Path, folder: str, system: ProbeSystem) -> None:
    try:
        system.listdir(str(root))
    except FileNotFoundError:
        raise InputError(f"{root} does not exist: make it, or pass a folder on the filesystem to look at") from None
    except NotADirectoryError:
        raise InputError(f"{root} is a file: pass a folder on the filesystem to look at") from None
    except OSError as error:
        raise InputError(f"{root} cannot be listed ({error.strerror}): pass a folder that you may use") from None
    try:
        with full_disk_told(str(root)):
            system.make_folder(folder)
    except OSError as error:
        raise InputError(
            f"{root} cannot be written to ({error.strerror}): pass a folder that you may write to, as agents will"
        ) from None


def _remove(system: ProbeSystem, folder: str) -> None:
    """Remove the folder, again where somebody was about to add to it."""
    for tries_left in (2, 1, 0):
        try:
            system.remove_tree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if not tries_left:
                raise StoreError(f"{folder} could not be removed ({error.strerror}): remove it") from None


def examine(system: ProbeSystem, folder: str, *, progress: Callable[[str], None], n_names: int = NAMES) -> Examined:
    """Make every probe and race in an empty folder."""
    with witnesses(RACERS) as started:
        site = Site(system=system, folder=folder, witness=started[0])
        findings = []
        for check, probe in PROBES.items():
            progress(check)
            findings.append(look(check, probe, site))
        trials = {}
        for form in Form:
            progress(f"race: {form}")
            with full_disk_told(folder):
                n = n_names if form is Form.CREATE else n_names // 2
                trials[form] = race_here(system, f"{folder}/race-{form}", form, started, n_names=n)
    findings += [deduce.raced(trial, by="processes of this host") for trial in trials.values()]
    return Examined(findings=tuple(findings), trials=trials)


def race_here(system: ProbeSystem, folder: str, form: Form, racers: Sequence[Witness], *, n_names: int) -> Trial:
    """Let processes of this host race for names."""
    system.make_folder(folder)
    for number, racer in enumerate(racers):
        racer.ask("race", folder=folder, form=form, me=f"p{number}", n=n_names, limit_s=LIMIT_S)
    raced = [racer.raced() for racer in racers]
    seen = owners(system, folder, form, min(racer.tried for racer in raced))
    return judge(form, raced, [seen])


def conclude(root: Path, mount: Mount, here: Examined, meeting: Meeting | None) -> Report:
    """Draw the conclusion from what one host found, and two hosts, if they met. Pure but for the host's name."""
    races = [here.trials] if meeting is None else [here.trials, meeting.trials]
    form = deduce.publish_form(here.simple, races)
    is_shared = not mount.is_local or (meeting is not None and not meeting.is_same_host)
    delays_s = () if meeting is None else (meeting.listing_s, meeting.content_s)
    return Report(
        folder=str(root),
        host=host_name(),
        peer=meeting.peer if meeting and not meeting.is_same_host else None,
        kind=mount.kind,
        is_shared=is_shared,
        findings=(
            *deduce.mounted(mount),
            *here.findings,
            *(told(meeting) if meeting else ()),
            deduce.publication(form),
        ),
        has_symlinks=here.simple[Form.SYMLINK],
        publish=form or "symlink",
        ttl_s=deduce.recommended_ttl(is_shared=is_shared, delays_s=delays_s),
    )
