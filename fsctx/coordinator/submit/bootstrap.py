"""How a pilot starts: from what its node has, or from a packed environment that it brings along."""

import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import fsctx
from fsctx.errors import InputError
from fsctx.protocol.manifest import Context, read_environments
from fsctx.store import Store

NO_ENVIRONMENT = "none"
"""What `--env` says where pilots start from the fsctx that submits them, although the run has an environment."""

_NAME = "bootstrap.py"


def bootstrap_file() -> Path:
    """Return where the bootstrap is: in the installed package, or in a checkout. It is one file and needs no other."""
    packaged = Path(str(resources.files(fsctx))) / "submit_templates" / _NAME
    return packaged if packaged.is_file() else Path(fsctx.__file__).parent.parent / "submit_templates" / _NAME


def agent_words(run: Path, digest: str | None, *, bootstrap: Path | None = None) -> tuple[str, ...]:
    """Return what an interpreter is told to become an agent, by the bootstrap where there is an environment."""
    if digest is None:
        return ("-P", "-m", "fsctx", "agent", str(run))
    return ("-I", str(bootstrap or bootstrap_file()), str(run), "--env", digest)


def pilot_command(
    run: Path, digest: str, *, bootstrap: Path | None = None, python: str = "python3", options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the arguments that start an agent from an environment that `fsctx env add` made known to the run.

    `python`: any Python 3.8 or newer of the node. `bootstrap`: the file's path there, where the batch system brings
    it. `options` go to `fsctx agent`. The command becomes the agent by exec, so signals reach it.
    """
    return (python, *agent_words(run, digest, bootstrap=bootstrap), *options)


def interpreter(digest: str | None) -> str:
    """Return what starts pilots: this interpreter, or, with an environment, the one that its own was made from.

    A packed virtual environment needs that one, or its like, on the node anyway.
    """
    return sys.executable if digest is None else getattr(sys, "_base_executable", None) or sys.executable


def choose_environment(store: Store, asked: str | None) -> Context | None:
    """Return the environment that pilots bring along: the one `asked` for by digest or name, else the run's only one.

    Raises:
        InputError: the run does not have it, has several, or its archive is not where it was.
    """
    if asked == NO_ENVIRONMENT:
        return None
    found = [one for one in read_environments(store) if asked is None or _is_meant(one, asked)]
    known = ", ".join(sorted(f"{one.name} ({one.digest[:12]})" for one in read_environments(store))) or "none"
    if asked is not None and not found:
        raise InputError(f"--env {asked}: {store.root} has no such environment, it has: {known}; see `fsctx env add`")
    if len(found) > 1:
        raise InputError(f"{store.root} has the environments {known}: pass one with --env, or --env {NO_ENVIRONMENT}")
    for environment in found:
        _check_archive(environment)
    return found[0] if found else None


def _is_meant(environment: Context, asked: str) -> bool:
    return environment.name == asked or (len(asked) >= 6 and environment.digest.startswith(asked))


def _check_archive(environment: Context) -> None:
    """Refuse what no pilot could fetch. Its bytes are compared when it is fetched."""
    path = environment.path_in(Path(environment.origin))
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InputError(
            f"{path}, the archive of the environment {environment.name}, cannot be read ({error.strerror}): put it "
            f"back, run `fsctx env add` with another, or pass --env {NO_ENVIRONMENT}"
        ) from None
    if size_bytes != environment.size_bytes:
        raise InputError(
            f"{path} has {size_bytes:,} bytes and had {environment.size_bytes:,} when it was added: put it back, "
            f"or run `fsctx env add` again and pass the new digest with --env"
        )
