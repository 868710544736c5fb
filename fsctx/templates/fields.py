"""Typed reading of a TOML table, with messages that say where and what was expected."""

import math
from collections.abc import Mapping
from typing import Any

from fsctx.errors import InputError
from fsctx.templates.source import Source, nearest


class Fields:
    """One table of a template's TOML; unknown keys are refused at once."""

    def __init__(self, table: Mapping[str, Any], source: Source, *, known: tuple[str, ...], inside: str = "") -> None:
        self.source = source
        self._table = table
        self._inside = inside
        for key in table:
            if key not in known:
                raise InputError(
                    f"{source.at(key)}: unknown key {inside}{key}{nearest(key, known)}; known: {', '.join(known)}"
                )

    def get(self, key: str) -> Any:
        """Return a value as TOML gave it; None where the key is absent."""
        return self._table.get(key)

    def text(self, key: str) -> str | None:
        """Return a string; None where the key is absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, repr(value), "a string in quotes")
        return value

    def required(self, key: str) -> str:
        """Return a string that must be there and not be blank."""
        value = self.text(key)
        if value is None or not value.strip():
            raise self.wrong(key, "missing or blank", "some text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, none of them empty; none at all where the key is absent."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(part, str) and part for part in value):
            raise self.wrong(key, repr(value), "a list of strings, none of them empty")
        return tuple(value)

    def number(self, key: str, default: float, *, at_least: float, kind: type = float) -> float:
        """Return a finite number (a whole one where `kind` is int); the default where the key is absent."""
        value = self._table.get(key, default)
        allowed = (int,) if kind is int else (int, float)
        is_number = isinstance(value, allowed) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value < at_least:
            noun = "a whole number" if kind is int else "a number"
            raise self.wrong(key, repr(value), f"{noun}, at least {at_least}")
        return float(value)

    def flag(self, key: str) -> bool:
        """Return true or false; false where the key is absent."""
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, repr(value), "true or false")
        return value

    def table(self, key: str, *, known: tuple[str, ...]) -> "Fields":
        """Return a table within this one; an empty one where the key is absent."""
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, repr(value), f"a table [{key}]")
        return Fields(value, self.source, known=known, inside=f"{key}.")

    def tables(self, key: str, *, known: tuple[str, ...]) -> tuple["Fields", ...]:
        """Return a list of tables."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.wrong(key, repr(value), f"tables [[{key}]]")
        return tuple(
            Fields(part, self.source, known=known, inside=f"{key}[{number}].") for number, part in enumerate(value, 1)
        )

    def wrong(self, key: str, seen: str, expected: str) -> InputError:
        """Return the error that says what a key has and what it should have."""
        return InputError(f"{self.source.at(key)}: {self._inside}{key} is {seen}; it must be {expected}")
