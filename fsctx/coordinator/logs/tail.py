"""Reading on in a file that one writer appends to."""

from dataclasses import dataclass

from fsctx.errors import Missing
from fsctx.store import Store


@dataclass(slots=True, kw_only=True)
class Tail:
    """A file's whole lines, each once. Every look opens it afresh: that shows what other hosts appended."""

    store: Store
    name: str
    offset: int = 0
    _rest: bytes = b""

    def read_on(self) -> list[str]:
        """Return the lines that were finished since the last look; none while the file is not there."""
        try:
            with self.store.open(self.name) as file:
                file.seek(self.offset)
                content = file.read()
        except Missing:
            return []
        self.offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """Return the line that has no end yet, where nobody will wait for it."""
        return [self._rest.decode(errors="replace")] if self._rest else []


def last_lines(store: Store, name: str, *, n_bytes: int) -> list[str]:
    """Return the whole lines among a file's last bytes; none where it is not there."""
    try:
        with store.open(name) as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - n_bytes))
            content = file.read()
    except Missing:
        return []
    lines = content.decode(errors="replace").split("\n")[:-1]
    return lines if end <= n_bytes else lines[1:]
