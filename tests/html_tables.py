"""What a page's tables say, read as a browser would show it without script."""

from html.parser import HTMLParser


class Tables(HTMLParser):
    """Collects the text of every cell of each `tbody` that has an id, line by line."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.bodies: dict[str, list[list[str]]] = {}
        self._lines: list[list[str]] | None = None
        self._is_in_cell = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tbody":
            name = dict(attrs).get("id")
            self._lines = self.bodies.setdefault(name, []) if name else None
        elif self._lines is not None and tag == "tr":
            self._lines.append([])
        elif self._lines is not None and tag in ("td", "th"):
            self._lines[-1].append("")
            self._is_in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._is_in_cell = False
        elif tag == "tbody":
            self._lines = None

    def handle_data(self, data):
        if self._lines is not None and self._is_in_cell:
            self._lines[-1][-1] += data
