"""Words of others on a terminal."""


def printable(text: str) -> str:
    """Escape what would move a terminal's cursor: engines and other people's files can hold such."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)
