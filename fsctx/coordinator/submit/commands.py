"""Calling a batch system's own commands."""

import contextlib
import re
import subprocess
from collections.abc import Callable, Sequence

from fsctx.coordinator.submit.errors import Unreachable
from fsctx.errors import InputError

PATIENCE_S = 60.0

_PREFIX = re.compile(r"^(\w+: )?(error|ERROR): ", re.IGNORECASE)

Call = Callable[[Sequence[str], str], str]
"""See `call`."""


class Refused(InputError):
    """A command ended with an error; the message is what it said."""


def call(command: Sequence[str], text: str = "") -> str:
    """Call a command with a text as its input, and return what it printed.

    Raises:
        Unreachable: there is no such command here, or it does not come back.
        Refused: it ended with an error.
    """
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE_S, errors="replace"
        )
    except FileNotFoundError:
        raise Unreachable(f"there is no {command[0]} on this host: submit from a host of the batch system") from None
    except OSError as error:
        raise Unreachable(f"{command[0]} cannot be called ({error.strerror}): check its installation") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} did not answer within {PATIENCE_S:.0f} s: try again later") from None
    if done.returncode != 0:
        raise Refused(f"{command[0]}: {last_words(done.stderr or done.stdout) or f'exit code {done.returncode}'}")
    return done.stdout


def attempt(command: Sequence[str], *, call: Call = call) -> None:
    """Call a command whose failure does not matter."""
    with contextlib.suppress(Refused, Unreachable):
        call(command, "")


def last_words(said: str) -> str:
    """Return what a command said in one line: the lines that speak of an error, else the last one.

    qsub's last line is that it is exiting.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip() not in ("", "Exiting.")]
    errors = [line for line in lines if "error" in line.lower() or "invalid" in line.lower()]
    return "; ".join(_PREFIX.sub("", line).rstrip(" :.") for line in errors[:2] or lines[-1:])
