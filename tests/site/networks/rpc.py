"""Counts what a client of NFS asks of its server, from /proc/self/mountstats (per-op statistics)."""

import re
from collections import Counter

from networks.beds import Client
from networks.scenario import ONHOST, TTL_S, UNIT_ROWS

DATA = frozenset({"READ", "WRITE", "COMMIT"})
"""Calls that move content; every other one is about names and attributes."""

SESSION = frozenset({"NULL", "SEQUENCE", "EXCHANGE_ID", "CREATE_SESSION", "RECLAIM_COMPLETE", "RENEW", "FSINFO"})
"""Calls of the mount itself."""


def calls_of_a_run(client: Client, name: str, *, n_units: int) -> Counter[str]:
    """Let one agent do a whole run of fast units and return the calls by kind, its start and end among them."""
    run = f"{client.mount}/{name}"
    client.ask(ONHOST, "make", run, str(n_units * UNIT_ROWS), str(UNIT_ROWS), str(TTL_S), "plain")
    before = _calls(client)
    client.ask("-m", "fsctx", "agent", run, "--engine", "fake")
    return _calls(client) - before


def metadata_calls(calls: Counter[str]) -> int:
    """Sum what is neither content nor the mount's own."""
    return sum(number for kind, number in calls.items() if kind not in DATA | SESSION)


def _calls(client: Client) -> Counter[str]:
    stats = client.cat("/proc/self/mountstats")
    own = stats.split(f" mounted on {client.mount} with ")[1].split("\ndevice ")[0]
    per_op = own.split("per-op statistics")[1]
    return Counter({kind: int(number) for kind, number in re.findall(r"^\s*([A-Z_]+): (\d+)", per_op, re.MULTILINE)})
