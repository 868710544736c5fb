"""`--app FILE:NAME` → an application, read and never executed: what it says of itself stands in constants."""

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fsctx.errors import InputError
from fsctx.protocol.apps import BATCH_ROWS, LOAD, LOAD_TAKES, App
from fsctx.protocol.outputs import TYPES
from fsctx.templates.source import nearest

MAX_BYTES = 1 << 20
"""A file larger than this is hardly a program."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedApp:
    """An application and its file's content."""

    app: App
    code: bytes


def read_app(spec: str) -> PlannedApp:
    """Read an application.

    Raises:
        InputError: no such file, no Python, no such function, or constants that say nothing usable.
    """
    file, colon, function = spec.rpartition(":")
    if not (file and colon and function.isidentifier()):
        raise InputError(f"--app {spec}: write it as FILE:NAME, such as --app app.py:classify")
    path = Path(file)
    code = _read(path)
    try:
        tree = ast.parse(code, filename=file)
    except SyntaxError as error:
        raise InputError(f"application {file} is not Python: line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"application {file} is not Python: {error}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    _refuse_coroutine(tree, function, file)
    _check_functions(functions, function, file)
    constants = dict(_constants(tree))
    app = App(
        file=path.name,
        function=function,
        sha256=hashlib.sha256(code).hexdigest(),
        labels=_constant(constants, "LABELS", (), _labels, file),
        outputs=_constant(constants, "OUTPUT", {}, _outputs, file),
        batch_rows=_constant(constants, "BATCH_ROWS", BATCH_ROWS, _batch_rows, file),
    )
    return PlannedApp(app=app, code=code)


def _read(path: Path) -> bytes:
    try:
        code = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise InputError(f"application {path} cannot be read ({error.strerror}): pass --app FILE:NAME") from None
    if code is None:
        raise InputError(f"application {path} is larger than {MAX_BYTES:,} bytes: pass a Python file")
    return code


def _refuse_coroutine(tree: ast.Module, name: str, file: str) -> None:
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name in (name, LOAD):
            raise InputError(f"application {file}, line {node.lineno}: {node.name} is async: write def {node.name}")


def _check_functions(functions: dict[str, ast.FunctionDef], name: str, file: str) -> None:
    if name not in functions:
        found = ", ".join(functions) or "none"
        raise InputError(
            f"application {file} defines no function {name!r} at its top level{nearest(name, functions)}; "
            f"it has: {found}"
        )
    required, positional = _parameters(functions[name])
    if len(required) > 2 or (positional is not None and positional < 2):
        raise InputError(
            f"application {file}, line {functions[name].lineno}: {name} must take two arguments, "
            f"the context and a list of rows: write def {name}(context, rows)"
        )
    unknown = [one for one in _parameters(functions[LOAD])[0] if one not in LOAD_TAKES] if LOAD in functions else []
    if unknown:
        raise InputError(
            f"application {file}, line {functions[LOAD].lineno}: {LOAD} asks for {', '.join(unknown)}: "
            f"it can ask for {' and '.join(LOAD_TAKES)}, by these names"
        )


def _parameters(function: ast.FunctionDef) -> tuple[list[str], int | None]:
    """Return the parameters without a default, and how many arguments fit by position (None: any number)."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    required = [one.arg for one in positional[: len(positional) - len(given.defaults)]]
    required += [one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return required, None if given.vararg else len(positional)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _constant(
    constants: dict[str, ast.expr], name: str, default: Value, read: Callable[[ast.expr], Value], file: str
) -> Value:
    if name not in constants:
        return default
    try:
        return read(constants[name])
    except ValueError as error:
        raise InputError(f"application {file}, line {constants[name].lineno}: {name} must be {error}") from None


def _labels(node: ast.expr) -> tuple[str, ...]:
    labels = _literal(node)
    is_list = isinstance(labels, list | tuple) and all(isinstance(one, str) and one for one in labels)
    if not is_list or not labels or len(set(labels)) < len(labels):
        raise ValueError('a list of distinct strings, written out, such as ["SUPPORTED", "REFUTED"]')
    return tuple(labels)


def _outputs(node: ast.expr) -> dict[str, str]:
    expected = f'a dict of names and types, written out, such as {{"summary": str}}; types: {", ".join(TYPES)}'
    if not isinstance(node, ast.Dict):
        raise ValueError(expected)
    names = [_literal(key) for key in node.keys if key is not None]
    kinds = [ast.unparse(kind) for kind in node.values]
    are_usable = all(isinstance(one, str) and one.isidentifier() for one in names) and set(kinds) <= set(TYPES)
    if not are_usable or len(set(names)) < len(kinds):
        raise ValueError(expected)
    if taken := {"verdict", "scores", "text", "error"} & set(names):
        raise ValueError(f"a dict of further columns: {', '.join(taken)} is there in any case")
    return dict(zip(names, kinds, strict=True))


def _batch_rows(node: ast.expr) -> int:
    rows = _literal(node)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise ValueError("a whole number of at least 1, written out")
    return rows


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
