"""Submit templates: found in a checkout and in an installed package, rendered strictly."""

import shlex
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError, TemplateSyntaxError, meta

import fsctx
from fsctx.errors import InputError

_FOLDER = "submit_templates"


def read_text(name: str) -> str:
    """Return the text of a submit template that comes with fsctx."""
    packaged = resources.files(fsctx) / _FOLDER / name
    checkout = Path(fsctx.__file__).parent.parent / _FOLDER / name
    for place in (packaged, checkout):
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise InputError(f"the submit template {name} is neither in {packaged} nor in {checkout}: install fsctx again")


def render(text: str, facts: Mapping[str, object], settings: Mapping[str, str], *, where: str) -> str:
    """Render a submit template with fsctx's own facts and the user's settings.

    Raises:
        InputError: a setting that the template does not use, one that it needs and did not get, or bad Jinja2.
    """
    jinja = _environment()
    try:
        settable = meta.find_undeclared_variables(jinja.parse(text)) - facts.keys() - jinja.globals.keys()
        _check_settings(settings, settable, where)
        return jinja.from_string(text).render({**settings, **facts})
    except TemplateSyntaxError as error:
        raise InputError(f"{where}:{error.lineno}: {error.message}: mend the template there") from None
    except TemplateError as error:
        raise InputError(f"{where}: {error}: pass it with --set KEY=VALUE") from None


def _check_settings(settings: Mapping[str, str], settable: Iterable[str], where: str) -> None:
    unknown = sorted(set(settings) - set(settable))
    if unknown:
        known = ", ".join(sorted(settable)) or "none"
        raise InputError(f"--set {unknown[0]}: {where} has no such setting; it has: {known}")


def _environment() -> Environment:
    jinja = Environment(  # noqa: S701 - the text is a script, not a page
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    jinja.filters["quote"] = lambda value: shlex.quote(str(value))
    jinja.filters["quote_all"] = shlex.join
    return jinja
