"""What a process can see of its surroundings, and how batch systems spell things in it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NOT_A_GPU = frozenset({"10000", "-1", "none", "nodevfiles", "void", "undefined"})
"""What stands for no GPU: 10000 is HTCondor's, NoDevFiles is Slurm's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that the readers of batch jobs may look at."""

    environ: Mapping[str, str]
    read: Callable[[str], str | None]
    """Return the text of a file; None where it cannot be read."""
    age_s: float
    """Seconds since this process started."""
    now_s: float
    """This host's clock, in seconds since the epoch."""

    def number(self, name: str) -> int | None:
        """Return an environment variable's value as a number; None where it is none."""
        return to_int(self.environ.get(name))

    def first(self, *names: str) -> str | None:
        """Return the first of these environment variables that is set and not empty."""
        return next((self.environ[name] for name in names if self.environ.get(name)), None)


def to_int(text: str | None) -> int | None:
    """Return a decimal number; None for anything else."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text.strip()) else None


def to_gpus(text: str | None) -> tuple[str, ...] | None:
    """Return the GPUs in a list as batch systems write them; empty: none; None: nothing was said."""
    if text is None:
        return None
    return tuple(word for word in re.split(r"[\s,]+", text) if word and word.lower() not in _NOT_A_GPU)


def mebibytes(number: int | None) -> int | None:
    """Return mebibytes as bytes."""
    return None if number is None else number << 20
