"""How two doctors talk: numbered files in a folder that both see. No port, no clock of the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from fsctx.errors import NotComplete
from fsctx.protocol import codec
from fsctx.store import PosixStore

Side = Literal["a", "b"]
"""`a` waits in the folder, `b` joins."""

FIRST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.05
PATIENCE_S = 120.0
"""How long one waits for the other's next word: longer than any filesystem was seen to hide a name."""

FAREWELL_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One message. Fields beyond `step` are what the step needs."""

    step: str
    host: str = ""
    boot_id: str = ""
    wall_s: float = 0.0
    """What the clock on the sender's wall shows."""
    seconds: float | None = None
    tried: int = 0
    won: tuple[int, ...] = ()
    failed: int = 0
    error: str = ""
    owners: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Line:
    """One end of the line, in a store's root folder."""

    store: PosixStore
    side: Side
    other: str
    """Who is at the other end, for messages."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_s: float = PATIENCE_S
    _said: int = field(default=0, init=False)
    _heard: int = field(default=0, init=False)

    def say(self, word: Word) -> None:
        """Say the next word."""
        self.store.replace(f"{self.side}.{self._said}", codec.encode(word))
        self._said += 1

    def hear(self, step: str) -> Word:
        """Wait for the other's next word: for its name to be listed, then by a fresh open.

        Raises:
            NotComplete: the other fell silent, or says something else.
        """
        name = f"{'b' if self.side == 'a' else 'a'}.{self._heard}"
        self.until(lambda: name in self.store.list(""), f"waiting for {step!r}")
        word = codec.decode(self.store.read(name), Word, where=name)
        if word.step != step:
            raise NotComplete(
                f"{self.other} said {word.step!r} where {step!r} was due: use the same version on both hosts"
            )
        self._heard += 1
        return word

    def exchange(self, word: Word) -> Word:
        """Say a word and hear the other's of the same step: afterwards both are there."""
        self.say(word)
        return self.hear(word.step)

    def part(self) -> None:
        """End the talk: `a`, who takes the folder away, waits for a while until `b` needs nothing more."""
        if self.side == "b":
            self.say(Word(step="farewell"))
        else:
            self.watch(lambda: f"b.{self._heard}" in self.store.list(""), FAREWELL_S)

    def until(self, is_so: Callable[[], bool], what: str) -> float:
        """Look again and again until something is so; return after how many seconds it was.

        Raises:
            NotComplete: it was not so in time.
        """
        seconds = self.watch(is_so, self.patience_s)
        if seconds is None:
            raise NotComplete(
                f"{self.other} fell silent ({what}, {self.patience_s:g} s): run fsctx doctor on both hosts again"
            )
        return seconds

    def watch(self, is_so: Callable[[], bool], limit_s: float) -> float | None:
        """Look until something is so; return after how many seconds it was, None if it was not in time."""
        began_s, pause_s = self.clock(), FIRST_PAUSE_S
        while not is_so():
            if self.clock() - began_s >= limit_s:
                return None
            self.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
        return self.clock() - began_s
