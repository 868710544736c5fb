"""The ends of the commands' helps, completion, and versions."""

import inspect
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from fsctx import errors
from fsctx.cli import COMMANDS, cli
from fsctx.cli.manual import EXIT_CODES, MANUALS
from fsctx.cli.version import versions
from fsctx.protocol.codec import SCHEMA

SHELLS = ("bash", "zsh", "fish")


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def examples() -> Iterator[str]:
    return (example for name in COMMANDS for example in MANUALS[name].examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_examples_exit_codes_and_what_to_read_next(name: str) -> None:
    shown = run(name, "--help")
    assert all(f"  {example}\n" in shown for example in MANUALS[name].examples)
    assert all(EXIT_CODES[code] in shown for code in MANUALS[name].exits)
    assert {word.split()[0] for word in MANUALS[name].see} <= set(COMMANDS)


@pytest.mark.parametrize("example", [example for example in examples() if example.startswith("fsctx ")])
def test_every_example_is_accepted_as_it_stands(example: str) -> None:
    words = shlex.split(example.partition(" > ")[0])[1:]
    context: click.Context = click.Context(cli)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    command.make_context(name, words)


def test_every_exit_code_of_an_error_is_documented() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert {kind.exit_code for kind in kinds} <= EXIT_CODES.keys()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_a_script_that_calls_fsctx(shell: str) -> None:
    assert "_FSCTX_COMPLETE" in run("completion", shell)


def complete(line: str) -> list[str]:
    """What bash would be offered for the last word of a line."""
    environ = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_FSCTX_COMPLETE": "bash_complete"}
    code = "import sys; sys.argv = ['fsctx']; from fsctx.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert complete("fsctx col") == ["plain,collect"]
    assert complete("fsctx status --wa") == ["plain,--watch"]
    assert complete("fsctx plan --method g") == ["plain,generate"]


def test_versions_are_one_document_with_the_schema_and_the_engines() -> None:
    told = json.loads(run("version", "--json"))
    assert list(told) == ["fsctx", "python", "platform", "run_schema", "engines", "packages"]
    assert (told["run_schema"], told["engines"]["fake"]) == (SCHEMA, True)
    assert told["packages"]["click"]


def test_an_engine_whose_packages_are_missing_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "vllm"):
        monkeypatch.setitem(sys.modules, name, None)
    assert versions()["engines"] == {"fake": True, "hf": False, "vllm": False}
    assert "engines      fake\n" in run("version")
