"""Reading templates: built-in ones by name, others from TOML files."""

import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fsctx.errors import InputError
from fsctx.templates.checks import check, check_renders, used_columns
from fsctx.templates.fields import Fields
from fsctx.templates.model import Example, Generation, Label, Template
from fsctx.templates.source import Source, nearest

__all__ = ["builtin_names", "check_renders", "load_template", "parse_template", "template_source", "used_columns"]

MAX_BYTES = 1 << 20
"""A template larger than this is some other file."""

_SUFFIX = ".toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = ("name", "system", "user", "text", "messages", "labels", "examples", "generation")
_GENERATION_KEYS = ("max_new_tokens", "temperature", "stop", "choice", "pattern")


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in templates."""
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in _builtins().iterdir() if f.name.endswith(_SUFFIX)))


def template_source(ref: str) -> str:
    """Return the TOML text of a template: a built-in's name, or the path of a file.

    Raises:
        InputError: neither; or a file that cannot be read as text.
    """
    if ref in builtin_names():
        return (_builtins() / f"{ref}{_SUFFIX}").read_text(encoding="utf-8")
    path = Path(ref)
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
        if data is None:
            raise InputError(f"template {ref} is larger than {MAX_BYTES} bytes: pass a template's TOML file")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise InputError(f"template {ref} is not UTF-8 text: pass a template's TOML file") from None
    except FileNotFoundError:
        known = builtin_names()
        raise InputError(
            f"template {ref!r} is neither a file nor built in{nearest(ref, known)}; built in: {', '.join(known)}"
        ) from None
    except OSError as error:
        raise InputError(f"template {ref} cannot be read ({error.strerror}): check its path and mode") from None


def load_template(ref: str) -> Template:
    """Read and check a template: a built-in's name, or the path of a TOML file (see `parse_template`)."""
    return parse_template(template_source(ref), where=ref)


def parse_template(text: str, *, where: str) -> Template:
    """Read and check a template's TOML text; `where` is what messages call it.

    Raises:
        InputError: not TOML, not a template, or one that could not tell its labels apart.
    """
    source = Source(text=text, where=where)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"template {where} is not TOML ({error}): mend it there") from None
    template = _template(Fields(table, source, known=_KEYS))
    check(template, source)
    return template


def _template(fields: Fields) -> Template:
    return Template(
        name=_name(fields),
        labels=_labels(fields),
        system=fields.text("system"),
        user=fields.text("user"),
        text=fields.text("text"),
        messages=fields.text("messages"),
        examples=tuple(_example(part) for part in fields.tables("examples", known=("claim", "label"))),
        generation=_generation(fields.table("generation", known=_GENERATION_KEYS)),
    )


def _name(fields: Fields) -> str:
    name = fields.text("name") or Path(fields.source.where).name.removesuffix(_SUFFIX)
    if not _NAME.fullmatch(name):
        raise fields.wrong(
            "name", f"{name!r}", "up to 64 of the characters A-Z a-z 0-9 . _ -, the first a letter or digit"
        )
    return name


def _labels(fields: Fields) -> tuple[Label, ...]:
    """Read `labels`: a table of name = words, or a list of names that are their own words."""
    given: Any = fields.get("labels")
    if isinstance(given, list):
        given = dict(zip(given, given, strict=True)) if _are_distinct_texts(given) else None
    if not isinstance(given, dict) or not all(isinstance(words, str) for words in given.values()):
        seen = "missing" if fields.get("labels") is None else repr(fields.get("labels"))
        raise fields.wrong("labels", seen, 'a table like SUPPORTED = "SUPPORTED", or a list of distinct names')
    return tuple(Label(name=name, words=words) for name, words in given.items())


def _are_distinct_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def _example(fields: Fields) -> Example:
    return Example(claim=fields.required("claim"), label=fields.required("label"))


def _generation(fields: Fields) -> Generation:
    default = Generation()
    return Generation(
        max_new_tokens=int(fields.number("max_new_tokens", default.max_new_tokens, at_least=1, kind=int)),
        temperature=fields.number("temperature", default.temperature, at_least=0),
        stop=fields.texts("stop"),
        choice=fields.flag("choice"),
        pattern=fields.text("pattern"),
    )


def _builtins() -> Traversable:
    return resources.files("fsctx.templates") / "builtin"
