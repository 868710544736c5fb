"""The command line. Each command's module is imported when the command is called, so `fsctx --help` is quick."""

import errno
import importlib
import os
import sys
from collections.abc import Mapping

import click

from fsctx import __version__
from fsctx.cli.characters import never_fail_for_a_character
from fsctx.cli.manual import MANUALS, epilog
from fsctx.errors import FsctxError

COMMANDS: Mapping[str, str] = {
    "plan": "Shard claims into work units in a run folder.",
    "agent": "Work on a run's units: what a pilot job executes.",
    "submit": "Start pilots.",
    "status": "Show the fleet and how far a run is.",
    "logs": "Show what agents did, and what their pilots printed.",
    "collect": "Prove that every claim has one verdict, write them out, and score them.",
    "report": "Write a page about a run: its verdicts so far and its fleet.",
    "audit": "Compute a sample of published verdicts again and compare.",
    "retry": "Put failed units back.",
    "stop": "Tell a run's agents to leave.",
    "doctor": "Find out whether a filesystem keeps the promises that runs rest on.",
    "advise": "Say how to spread a model over the devices of a node.",
    "tune": "Measure a device, for advise to go by.",
    "cache": "Look after this node's cache.",
    "env": "Pack the software environment, once for all nodes.",
    "demo": "Try everything on some hundred claims.",
    "completion": "Print what makes a shell complete commands.",
    "version": "Show versions, and which engines are installed.",
}


_MENDABLE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
}
"""What the system says of a path that was passed wrongly."""


class _Lazy(click.Group):
    """Knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"fsctx.cli.{cmd_name}"), cmd_name)
        command.epilog = epilog(MANUALS[cmd_name])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fsctx")
def cli() -> None:
    """High-throughput LLM inference on opportunistic clusters, coordinated by a shared filesystem alone.

    A run is a folder: `plan` makes it, any number of `agent` work on it, `status` and `logs` look at it, `collect` ends
    it. Each command has --help with examples and exit codes.
    """


def main() -> None:
    """Run the command line; every error of ours is one line on stderr."""
    try:
        _open_closed_streams()
        never_fail_for_a_character(sys.stdout)
        sys.exit(cli(standalone_mode=False) or 0)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FsctxError as error:
        from fsctx.coordinator.printing import printable

        print(f"fsctx: {printable(str(error))}", file=sys.stderr)  # noqa: T201 - the one place that reports errors
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("fsctx: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except UnicodeEncodeError as error:
        print(f"fsctx: {error.object!a} cannot be written in this locale: set LC_ALL=C.UTF-8", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except OSError as error:
        print(f"fsctx: {_place(error)}: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        sys.exit(2 if error.errno in _MENDABLE else 1)


def _place(error: OSError) -> str:
    """Return what the system refused: a path as it was passed, else the current folder, else our output."""
    no_folder = "the current folder, which is gone" if error.errno == errno.ENOENT else "output"
    return str(error.filename or no_folder)


def _open_closed_streams() -> None:
    """Open what the caller closed (`>&-`): a file of the run would else become standard output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
