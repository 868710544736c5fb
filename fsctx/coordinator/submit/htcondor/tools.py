"""HTCondor by its command line tools."""

import json
import re
from collections.abc import Mapping, Sequence

from fsctx.coordinator.submit import commands
from fsctx.coordinator.submit.commands import Refused
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


class Tools:
    """See `Access`."""

    def __init__(self) -> None:
        """Find the access point.

        Raises:
            Unreachable: no tools, no access point, or not for this user.
        """
        _ask("condor_q", "-limit", "1", "-af", "ClusterId")
        self.version: Version = parse_version(_ask("condor_version"))
        self.versions: Mapping[str, str] = {"htcondor": ".".join(map(str, self.version))}
        self.how = f"condor_submit {self.versions['htcondor']}"

    def setting(self, name: str) -> str | None:
        """See `Access.setting`."""
        try:
            return commands.call(["condor_config_val", name]).strip()
        except Refused:
            return None

    def submit(self, text: str) -> int:
        """See `Access.submit`."""
        try:
            printed = commands.call(["condor_submit", "-terse", "-"], text)
        except Refused as error:
            raise InputError(f"HTCondor refused the pilots: {error}: nothing was queued; see --dry-run") from None
        found = re.search(r"^(\d+)\.\d+", printed, re.MULTILINE)
        if found is None:
            raise InputError(f"condor_submit printed no cluster ({printed.strip()!r}): look with condor_q")
        return int(found[1])

    def jobs(self, clusters: Sequence[int]) -> list[Ad]:
        """See `Access.jobs`; jobs, then the clusters that still make some."""
        command = ["condor_q", "-json", "-attributes", ",".join(JOB_ATTRIBUTES), "-constraint", of_clusters(clusters)]
        return [*_ads(_ask(*command)), *_ads(_ask(*command, "-factory"))]

    def remove_idle(self, clusters: Sequence[int]) -> None:
        """See `Access.remove_idle`."""
        running = running_clusters(self.jobs(clusters))
        make_no_more(running)
        commands.attempt(["condor_rm", "-constraint", waiting(clusters, running)])

    def machines(self) -> Machines:
        """See `Access.machines`."""
        return machines_of(_ads(_ask("condor_status", "-json", "-constraint", NOT_DYNAMIC)))


def _ask(*command: str) -> str:
    try:
        return commands.call(command)
    except Refused as error:
        raise Unreachable(f"HTCondor does not answer ({error}): check CONDOR_CONFIG") from None


def _ads(printed: str) -> list[Ad]:
    """Read a list of ads; the tools print nothing for an empty one."""
    return list(json.loads(printed)) if printed.strip() else []
