"""The table of devices that comes with fsctx."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from fsctx.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device can do at best; see devices.toml."""

    name: str
    memory_gb: float
    half: float
    float32: float
    memory_gbs: float
    link_gbs: float


def read_devices() -> dict[str, Device]:
    """Return the devices that are known, by name."""
    table = tomllib.loads(files(__package__).joinpath("devices.toml").read_text(encoding="utf-8"))
    return {name: Device(name=name, **values) for name, values in table.items()}


def find_device(name: str, known: Mapping[str, Device]) -> Device:
    """Return the device that a name means, as the table or a driver says it.

    Raises:
        InputError: none of the table.
    """
    wanted = _words(name)
    found = [device for device in known.values() if _words(device.name) <= wanted]
    if not found:
        raise InputError(f"--device {name} is not in the table: use one of {', '.join(known)}, or one that is like it")
    return max(found, key=lambda device: len(device.name))


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", re.sub(r"(?<=\d)gb\b", "", name.lower())))
