"""Rules of the house that no linter checks."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from fabricate import fabricate

from fsctx.cli import COMMANDS, cli
from fsctx.protocol import names

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "fsctx").rglob("*.py"))

MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 300

FOLDERS = (
    *names.BUCKETED,
    names.UNITS,
    names.AGENTS,
    names.CONTROL,
    names.SUBMISSIONS,
    names.CONTEXTS,
    names.HOSTS,
    names.SWEEP,
    names.APPS,
)
SPELLED = re.compile(
    rf"^(?:({'|'.join(FOLDERS)})/\S*|{re.escape(names.MANIFEST)}|{re.escape(names.PLANNING)}|agent\.json)$"
)
"""What a string that names a file of a run looks like."""

SYSTEM_CALLS = re.compile(
    r"\bos\.(open|listdir|scandir|rename|replace|link|symlink|unlink|remove|mkdir|makedirs|stat|lstat|utime|fsync)\("
    r"|\.(write_text|write_bytes|read_text|read_bytes|mkdir|unlink|touch|rename|iterdir|glob|rglob)\("
    r"|(?<![\w.])open\("
)
TOUCHING_FILES = {
    "fsctx/cli/__init__.py": "opens standard streams that the caller closed",
    "fsctx/store": "the one package that works on run folders",
    "fsctx/cache": "works on the node's cache",
    "fsctx/coordinator/plan": "reads inputs and models; its workspace makes a run before anybody shares it",
    "fsctx/coordinator/collect": "writes what the user asked for, outside the run",
    "fsctx/coordinator/advise": "reads models' dimensions and the table of devices",
    "fsctx/agent/tune.py": "reads a model's dimensions on the node",
    "fsctx/coordinator/doctor": "tries the system calls themselves, in a folder of its own",
    "fsctx/coordinator/environment": "packs the software environment into a file of the user's",
    "fsctx/coordinator/submit/texts.py": "reads the submit templates that come with fsctx",
    "fsctx/coordinator/submit/dag.py": "writes a DAG where the user asked for it",
    "fsctx/templates": "reads template files",
    "fsctx/protocol/processes.py": "reads /proc",
    "fsctx/agent/host.py": "reads /proc and /sys",
    "fsctx/agent/engines": "reads and converts model folders on the node",
    "fsctx/demo": "writes its own claims and fetches its model",
}

HEAVY = ("torch", "transformers", "tokenizers", "pyarrow", "duckdb", "numpy", "sklearn", "scipy", "jinja2", "gguf")


ENGINE_PACKAGES = {"torch", "transformers", "safetensors", "gguf", "tokenizers", "vllm", "accelerate", "peft"}
ADAPTERS = re.compile(
    r"fsctx/agent/engines/(hf|vllm)/[\w/]+\.py|fsctx/coordinator/plan/label_tokens\.py|fsctx/coordinator/advise/gguf_file\.py"
)
"""The modules that may import engine packages."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imports(tree: ast.AST) -> Iterator[str]:
    """The top packages that a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def strings(tree: ast.AST) -> Iterator[str]:
    """All string constants, those within f-strings too; docstrings are left out by what is looked for."""
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def loaded_by(*arguments: str) -> set[str]:
    """Return which of the heavy packages a call of the command line has imported at its end."""
    code = (
        "import sys; from fsctx.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('HEAVY', *(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("path", SOURCES, ids=where)
def test_functions_and_files_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = [f.name for f in functions(ast.parse(text)) if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]
    assert not long
    assert text.count("\n") <= MAX_FILE_LINES


def test_engine_packages_are_imported_by_their_adapters_alone() -> None:
    modules = {where(path): set(imports(ast.parse(path.read_text(encoding="utf-8")))) for path in SOURCES}
    assert not [name for name, found in modules.items() if found & ENGINE_PACKAGES and not ADAPTERS.fullmatch(name)]


def test_one_module_alone_spells_the_names_in_a_run() -> None:
    found = {
        f"{where(path)}: {text}"
        for path in SOURCES
        if where(path) != "fsctx/protocol/names.py"
        for text in strings(ast.parse(path.read_text(encoding="utf-8")))
        if SPELLED.match(text) and "\n" not in text
    }
    assert not found


def test_run_folders_are_touched_by_the_store_alone() -> None:
    found = [
        f"{where(path)}:{number}: {line.strip()}"
        for path in SOURCES
        if not any(where(path).startswith(known) for known in TOUCHING_FILES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if SYSTEM_CALLS.search(line.partition("#")[0]) and "store." not in line and '"""' not in line
    ]
    assert not found


def test_the_list_of_who_touches_files_is_up_to_date() -> None:
    assert not [known for known in TOUCHING_FILES if not (ROOT / known).exists()]


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("status", "--help"), ("stop", "--help")])
def test_help_needs_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) == set()


def test_status_stop_and_retry_need_nothing_heavy(tmp_path: Path) -> None:
    run = str(fabricate(tmp_path / "run").root)
    for arguments in (("status", run), ("status", run, "--json"), ("retry", run), ("stop", run)):
        assert loaded_by(*arguments) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_needs_no_engine_and_no_table(command: str) -> None:
    assert not loaded_by(command, "--help") & {"torch", "transformers", "pyarrow", "duckdb", "sklearn"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_and_explains_itself(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert not [option.name for option in options if not option.help and option.name not in ("method", "as_json")]


def documented() -> Iterator[tuple[str, list[str]]]:
    """All calls of fsctx in the code blocks of README.md, without comments."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S | re.M)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        call = re.match(r"^(?:\$ )?fsctx (.*)", line)
        if call:
            words = shlex.split(call[1], comments=True)
            yield line, words


@pytest.mark.parametrize(
    ("line", "words"), list(documented()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_readme_tells_to_type_is_accepted(line: str, words: list[str]) -> None:
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, line
    command.make_context(words[0], [word for word in words[1:] if word != "…"])


def test_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"fsctx {name}" not in text]
