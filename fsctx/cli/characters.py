"""Output in locales that lack characters."""

import codecs
import io
from typing import TextIO

_LENIENT = "fsctx.lenient"


def never_fail_for_a_character(output: TextIO) -> None:
    """Write a question mark for what the locale lacks: what is only shown is no reason to fail.

    Bytes of file names that are no text in this locale are written as they are.
    """
    codecs.register_error(_LENIENT, _replaced)
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors=_LENIENT)


def _replaced(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    is_byte = "\udc80" <= character <= "\udcff"  # PEP 383
    return bytes([ord(character) & 0xFF]) if is_byte else b"?", error.start + 1
