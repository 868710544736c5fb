"""Output in locales that lack characters."""

import io
from typing import TextIO


def never_fail_for_a_character(output: TextIO) -> None:
    """Write a question mark for what the locale lacks: what is only shown is no reason to fail."""
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")
