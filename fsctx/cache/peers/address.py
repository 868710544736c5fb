"""Who this node is to others: the address that they reach, and the name of its cache."""

import hashlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from fsctx.errors import InputError
from fsctx.protocol.processes import boot_id

_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation (RFC 5737, RFC 3849): which way out leads there is asked, nothing is sent."""


def own_address(wanted: str | None) -> str | None:
    """Return an address of this node: the one that is wanted, else that of the way out, else any; None if it has none.

    `wanted` is an address of this node, a network that it is in (`10.1.0.0/16`), or the name of an interface (`ib0`):
    the latter two may be told to all nodes alike.

    Raises:
        InputError: this node has no such address.
    """
    if wanted is not None:
        return _chosen(wanted)
    return next((address for address in (*_ways_out(), *_addresses()) if _is_useful(address)), None)


def _chosen(wanted: str) -> str:
    interfaces = psutil.net_if_addrs()
    if wanted in interfaces:
        found = [address for address in _addresses(wanted) if _is_useful(address)]
    else:
        found = [address for address in _addresses() if _is_in(address, wanted)]
    if not found:
        seen = ", ".join(sorted(set(_addresses()))) or "none"
        raise InputError(
            f"--peer-address {wanted}: this node has no such address, network or interface (it has {seen}): "
            "pass one of its own, or --no-peers"
        )
    return found[0]


def _is_in(address: str, wanted: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        raise InputError(
            f"--peer-address {wanted} is no address, network or interface of this node: "
            "pass one such as 10.1.2.3, 10.1.0.0/16 or eth0, or --no-peers"
        ) from None


def _ways_out() -> Iterator[str]:
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                yield str(probe.getsockname()[0])
        except OSError:  # no such way, or no such protocol here
            continue


def _addresses(interface: str | None = None) -> list[str]:
    """Return the node's addresses, IPv4 first; those of a link alone, which need its name, are left out."""
    found = [
        entry
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if interface in (None, name) and entry.family in (socket.AF_INET, socket.AF_INET6)
    ]
    found.sort(key=lambda entry: entry.family != socket.AF_INET)
    return [entry.address for entry in found if "%" not in entry.address]


def _is_useful(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)


def cache_name(root: Path) -> str:
    """Return what is equal for two agents that share a cache: the host since its boot, and the folder itself."""
    seen = os.stat(root)
    return hashlib.sha256(f"{boot_id()} {seen.st_dev} {seen.st_ino}".encode()).hexdigest()[:16]
