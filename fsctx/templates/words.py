"""How labels are compared: without regard to case, width, spaces, underscores and hyphens."""

import re
import unicodedata

_SEPARATORS = re.compile(r"[\s_\-\u2010-\u2015]+")


def spaced(text: str) -> str:
    """Return a text in one case and form, with single spaces for all separators."""
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def squeezed(text: str) -> str:
    """Return a text in one case and form, without separators: equal for `Not Enough-Info` and `NOT_ENOUGH_INFO`."""
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", text).casefold())
