"""A template's text and where it came from; every message about a template points into it."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The TOML text of a template and what to call it in messages."""

    text: str
    where: str

    def at(self, key: str, *, line: int = 0) -> str:
        """Return `FILE:LINE` of a key or table, or of a line (from 1) of a key's text; `FILE` where it is not found.

        TOML leaves out a newline right after the opening quotes, so the text's first line may be the next one.
        """
        quoted = rf"[\"']?{re.escape(key)}[\"']?"
        value = re.compile(rf'^[ \t]*(\[\[?{quoted}\]|{quoted}[ \t]*=[ \t]*(?P<opening>("""|\'\'\')\n)?)', re.MULTILINE)
        found = value.search(self.text)
        if found is None:
            return self.where
        first = self.text.count("\n", 0, found.start()) + 1
        if not line:
            return f"{self.where}:{first}"
        return f"{self.where}:{first + line - (0 if found['opening'] else 1)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "…"?)` where a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
