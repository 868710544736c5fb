"""Submit templates: a site's own, or those that come with fsctx, rendered strictly."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import fsctx
from fsctx.errors import InputError

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = "submit_templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Where submit templates are: first in the site's folder, if there is one, then in fsctx."""

    folder: Path | None = None

    def render(self, name: str, facts: Mapping[str, object], settings: Mapping[str, str]) -> str:
        """Render a template with fsctx's own facts and the user's settings.

        Raises:
            InputError: see `render`; no such folder.
        """
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"--template-dir {self.folder} is no folder: pass one that holds {name}")
        own = None if self.folder is None else self.folder / name
        if own is not None and own.is_file():
            return render(_read(own), facts, settings, where=str(own))
        return render(read_text(name), facts, settings, where=f"{_FOLDER}/{name}")


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
    from jinja2 import TemplateError, TemplateSyntaxError, meta

    jinja = _environment()
    try:
        settable = meta.find_undeclared_variables(jinja.parse(text)) - facts.keys() - jinja.globals.keys()
        _check_settings(settings, settable, where)
        return str(jinja.from_string(text).render({**settings, **facts}))
    except TemplateSyntaxError as error:
        raise InputError(f"{where}:{error.lineno}: {error.message}: mend the template there") from None
    except TemplateError as error:
        raise InputError(f"{where}: {error}: pass it with --set KEY=VALUE") from None
    except ValueError as error:  # quotes that do not close, in a setting that is words; a time that is none
        raise InputError(f"{where}: a setting cannot be read ({error}): check its form and quotes") from None


def _check_settings(settings: Mapping[str, str], settable: Iterable[str], where: str) -> None:
    unknown = sorted(set(settings) - set(settable))
    if unknown:
        known = ", ".join(sorted(settable)) or "none"
        raise InputError(f"--set {unknown[0]}: {where} has no such setting; it has: {known}")
    broken = sorted(key for key, value in settings.items() if "\n" in value or "\r" in value)
    if broken:
        raise InputError(f"--set {broken[0]}: the value has several lines: pass one line")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"submit template {path} cannot be read ({error}): check it") from None


def _environment() -> "Environment":
    from jinja2 import Environment, StrictUndefined

    jinja = Environment(  # noqa: S701 - the text is a script, not a page
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    jinja.filters["quote"] = lambda value: shlex.quote(str(value))
    jinja.filters["quote_all"] = shlex.join
    jinja.filters["words"] = shlex.split
    jinja.filters["seconds"] = seconds
    jinja.filters["condor"] = condor_text
    jinja.filters["condor_quote"] = condor_quote
    jinja.filters["classad"] = classad_string
    return jinja


def seconds(time: str) -> int:
    """Return how many seconds `SECONDS` or `HOURS:MINUTES:SECONDS` are, as Grid Engine has them (sge_types(1)).

    Raises:
        ValueError: it is no such time.
    """
    parts = str(time).split(":")
    if len(parts) not in (1, 3) or not all(part.isdecimal() for part in parts):
        raise ValueError(f"{time!r} is neither seconds nor H:M:S")
    return sum(int(part) * 60**power for power, part in enumerate(reversed(parts)))


def condor_text(value: str) -> str:
    """Return a text for a submit file, in which no `$` begins a macro."""
    return str(value).replace("$", "$(DOLLAR)")


def condor_quote(values: Iterable[str]) -> str:
    """Return words as HTCondor's quoted form of `arguments` and `environment` has them (condor_submit(1)).

    The whole is in double quotes, a word in single quotes where need be, and each quote within is doubled.
    """
    words = (condor_text(word).replace('"', '""') for word in values)
    return '"' + " ".join(_single_quoted(word) for word in words) + '"'


def _single_quoted(word: str) -> str:
    is_plain = word and not any(c.isspace() or c == "'" for c in word)
    return word if is_plain else "'" + word.replace("'", "''") + "'"


def classad_string(value: str) -> str:
    """Return a text as a ClassAd string."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
