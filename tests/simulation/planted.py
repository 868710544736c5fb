"""What a planted fault consists of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Planted:
    """A function of the real code in place of which another one stands: `make` is given the original."""

    where: Any
    name: str
    make: Callable[[Any], Any]


Plants = tuple[Planted, ...]
