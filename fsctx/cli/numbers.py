"""Numbers on the command line."""

from typing import Any

import click

MOST = 1e9
"""Clocks and sleeps do not take much more; as seconds it is thirty years."""


class Number(click.FloatRange):
    """A number in a range, of `MOST` at most. Neither infinite nor `nan`, which no comparison finds out of range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType.convert`."""
        number = float(super().convert(value, param, ctx))
        if not number <= MOST:
            self.fail(f"{value!r} is not a number up to {MOST:,.0f}", param, ctx)
        return number
