"""Every command in README.md and docs/: run where that can be done here, else at least understood by the program.

In fences marked `console`, the lines that begin with `$ ` are run, page by page, in an empty folder and in order; each
must succeed. Everything else that calls fsctx stands for a machine or a model that tests don't have: see `NOT_RUN`.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fsctx.cli import cli

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}

NOT_RUN = {
    "README.md": "a session with a real model; docs/first-run.md is the same with none",
    "docs/agent.md": "needs GPUs or a batch system",
    "docs/applications.md": "run by tests of its own",
    "docs/context.md": "needs several nodes, or packs the whole environment",
    "docs/coordination.md": "benches, which take long",
    "docs/doctor.md": "needs two hosts",
    "docs/engines.md": "needs GPUs and large models",
    "docs/gridengine.md": "needs a Grid Engine",
    "docs/htcondor.md": "needs an HTCondor pool",
    "docs/models.md": "needs a model; its console part is run",
    "docs/reading.md": "run by tests of its own",
    "docs/report.md": "needs a run; docs/first-run.md makes one with its report",
    "docs/slurm.md": "needs a Slurm cluster",
    "docs/sweeps.md": "needs a model of some quality",
}

FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.S | re.M)
CALL = re.compile(r"^(?:\w*\$ +| {4})?(fsctx [^|>]*)")


def console(text: str) -> list[str]:
    """The commands that a page has run."""
    blocks = [body for _, language, body in FENCE.findall(text) if language == "console"]
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def told(text: str) -> Iterator[list[str]]:
    """The words of every call of fsctx that stands in a fence or is indented, run or not."""
    fenced = [body for _, _, body in FENCE.findall(text)]
    indented = re.findall(r"^ {4}\S.*$", FENCE.sub("", text), re.M)
    for line in "\n".join([*fenced, *indented]).replace("\\\n", " ").splitlines():
        if call := CALL.match(line):
            yield shlex.split(call[1].partition(" || ")[0], comments=True)


def understand(words: list[str]) -> None:
    """Parse a call as the program would.

    Raises:
        ClickException: there is no such command, option or value.
    """
    command: click.Command = cli
    name, rest = words[0], [word for word in words[1:] if word != "…"]
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(click.Context(cli), name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command = found
    command.make_context(name, rest)


def run(commands: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run commands in a folder, as far as they succeed; the output ends with the one that did not."""
    called = f'fsctx() {{ {shlex.quote(sys.executable)} -m fsctx "$@"; }}'
    steps = [f"{{ {command}\n}} || {{ echo failed: {shlex.quote(command)}; exit 1; }}" for command in commands]
    folder.mkdir()
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "FSCTX_CACHE": f"{folder}-cache", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["bash", "-c", "\n".join([called, *steps])],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


RUN = [name for name, text in PAGES.items() if console(text)]
CALLS = [pytest.param(words, id=f"{name}: {' '.join(words)}") for name, text in PAGES.items() for words in told(text)]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_what_a_page_tells_to_run_works(page: str, tmp_path: Path) -> None:
    done = run(console(PAGES[page]), tmp_path / "here")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_command_that_fails_fails_its_page(tmp_path: Path) -> None:
    page = "```console\n$ echo begun\nits output\n$ test -e claims\n$ echo ended\n```\n\n```\n$ echo not run\n```\n"
    done = run(console(page), tmp_path / "here")
    assert (done.returncode, done.stdout) == (1, "begun\nfailed: test -e claims\n")


@pytest.mark.parametrize("words", CALLS)
def test_every_call_is_understood(words: list[str]) -> None:
    understand(words)


def test_what_is_not_run_says_why() -> None:
    """A page either has its commands run, or stands in `NOT_RUN`."""
    assert {name for name, text in PAGES.items() if name not in RUN and any(told(text))} <= NOT_RUN.keys()


def test_an_option_that_is_gone_is_noticed() -> None:
    with pytest.raises(click.ClickException):
        understand(["fsctx", "status", "my-run", "--gone"])
    with pytest.raises(click.ClickException):
        understand(["fsctx", "gone"])
