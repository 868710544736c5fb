"""HTCondor by its Python bindings, the package htcondor2."""

from collections.abc import Mapping, Sequence
from typing import Any

import htcondor2

from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.htcondor.access import (
    JOB_ATTRIBUTES,
    NOT_DYNAMIC,
    Ad,
    Machines,
    Version,
    machines_of,
    make_no_more,
    of_clusters,
    parse_version,
    running_clusters,
    waiting,
)
from fsctx.errors import InputError


class Bindings:
    """See `Access`."""

    def __init__(self) -> None:
        """Find the access point.

        Raises:
            Unreachable: no configuration, no access point, or not for this user.
        """
        try:
            ad = htcondor2.Collector().locate(htcondor2.DaemonType.Schedd)
            self._schedd = htcondor2.Schedd(ad)
            self._schedd.query("false", limit=1)
        except Exception as error:  # noqa: BLE001 - the bindings raise what they like, bare RuntimeError too
            raise _unreachable(error) from None
        self.version: Version = parse_version(str(ad.get("CondorVersion", "")))
        self.versions: Mapping[str, str] = {
            "htcondor": _dotted(self.version),
            "htcondor2": _dotted(parse_version(htcondor2.version())),
        }
        self.how = f"the access point {ad.get('Name', '?')} by the Python bindings {self.versions['htcondor2']}"

    def setting(self, name: str) -> str | None:
        """See `Access.setting`."""
        found = htcondor2.param.get(name)
        return None if found is None else str(found)

    def submit(self, text: str) -> int:
        """See `Access.submit`."""
        try:
            result = self._schedd.submit(htcondor2.Submit(text))
        except Exception as error:  # noqa: BLE001
            raise InputError(
                f"HTCondor refused the pilots: {_line(error)}: nothing was queued; see --dry-run"
            ) from None
        return int(result.cluster())

    def jobs(self, clusters: Sequence[int]) -> list[Ad]:
        """See `Access.jobs`."""
        try:
            return list(
                self._schedd.query(
                    of_clusters(clusters), list(JOB_ATTRIBUTES), opts=htcondor2.QueryOpt.IncludeClusterAd
                )
            )
        except Exception as error:  # noqa: BLE001
            raise _unreachable(error) from None

    def remove_idle(self, clusters: Sequence[int]) -> None:
        """See `Access.remove_idle`."""
        running = running_clusters(self.jobs(clusters))
        make_no_more(running)
        try:
            where = waiting(clusters, running)
            self._schedd.act(htcondor2.JobAction.Remove, where, reason="fsctx stop")
        except Exception as error:  # noqa: BLE001
            raise _unreachable(error) from None

    def machines(self) -> Machines:
        """See `Access.machines`."""
        try:
            return machines_of(list(htcondor2.Collector().query(htcondor2.AdType.Startd, NOT_DYNAMIC)))
        except Exception as error:  # noqa: BLE001
            raise _unreachable(error) from None


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(f"HTCondor does not answer ({_line(error)}): check CONDOR_CONFIG, and whether condor_q works")


def _line(error: Any) -> str:
    return " ".join(str(error).split()).rstrip(".:") or type(error).__name__


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
