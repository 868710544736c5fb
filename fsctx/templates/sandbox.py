"""The Jinja2 that templates are written in: sandboxed, strict, and without anything from outside.

No loader, no globals, no escaping. A template sees `claim` and the input's columns, nothing else.
"""

from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2 import Template as Compiled
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fsctx.errors import InputError

CLAIM = "claim"
"""The variable that holds the claim."""

_OUTSIDE = (nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport)


class JinjaError(InputError):
    """A template's Jinja2 is wrong at `line` (from 1, counted within the text)."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


def environment() -> ImmutableSandboxedEnvironment:
    """Return the environment that all templates are compiled in. Null values render as nothing."""
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_null_is_empty,
    )
    made.globals.clear()  # `range` and `dict` would hide columns of these names
    return made


def compiled(text: str) -> Compiled:
    """Compile a template's text.

    Raises:
        JinjaError: a syntax error, an unknown filter or test, or other files asked for.
    """
    made = environment()
    try:
        outside = next(made.parse(text).find_all(_OUTSIDE), None)
        if outside is not None:
            raise JinjaError("a template cannot include other files: write their text here", line=outside.lineno)
        return made.from_string(text)
    except TemplateSyntaxError as error:
        raise JinjaError(f"{error.message}: mend the Jinja2 there", line=error.lineno) from None
    except TemplateError as error:
        raise JinjaError(str(error), line=1) from None


def variables(text: str) -> dict[str, int]:
    """Return the variables that a text takes from outside, each with the line of its first use."""
    tree = environment().parse(text)
    wanted = meta.find_undeclared_variables(tree)
    lines: dict[str, int] = {}
    for name in tree.find_all(nodes.Name):
        if name.name in wanted and name.ctx == "load":
            lines[name.name] = min(name.lineno, lines.get(name.name, name.lineno))
    return lines


def _null_is_empty(value: Any) -> Any:
    return "" if value is None else value
