"""Limits that control groups set to this process, version 1 and 2. See cgroups(7)."""

import math
from collections.abc import Callable, Iterator

from fsctx.agent.job.seen import to_int

Read = Callable[[str], str | None]

_MOUNT = "/sys/fs/cgroup"


def memory_limit(read: Read) -> int | None:
    """Return the least limit on memory, in bytes; None where there is none.

    Version 1 writes a huge number for none: whoever compares with the host's memory is not misled.
    """
    texts = [*_values(read, "", "memory.max"), *_values(read, "memory", "memory.limit_in_bytes")]
    return min((limit for text in texts if (limit := to_int(text)) is not None), default=None)


def cores_limit(read: Read) -> int | None:
    """Return how many cores' time this process may use, rounded up; None where there is no limit."""
    pairs = [text.split() for text in _values(read, "", "cpu.max")]
    quotas, periods = (_values(read, "cpu", f"cpu.cfs_{part}_us") for part in ("quota", "period"))
    pairs += [[quota, period] for quota, period in zip(quotas, periods, strict=False)]
    numbers = [(to_int(quota), to_int(period)) for quota, period in pairs]
    return min((math.ceil(quota / period) for quota, period in numbers if quota and period and quota > 0), default=None)


def _values(read: Read, controller: str, file: str) -> list[str]:
    """Return a file's content in this process's group and in all groups above; `controller` is empty in version 2."""
    texts = [read(f"{folder}/{file}") for folder in _folders(read, controller)]
    return [text.strip() for text in texts if text is not None]


def _folders(read: Read, controller: str) -> Iterator[str]:
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        mount = f"{_MOUNT}/{controllers}" if controller else _MOUNT
        while path.strip("/"):
            yield f"{mount}{path}"
            path = path.rpartition("/")[0]
        yield mount
