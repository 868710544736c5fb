"""`fsctx submit`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsctx.cli.agent import device_of
from fsctx.cli.numbers import Number

if TYPE_CHECKING:
    from fsctx.coordinator.submit.base import BatchSystem
    from fsctx.coordinator.submit.dag import DagRequest
    from fsctx.coordinator.submit.starting import Asked
    from fsctx.coordinator.submit.texts import Templates
    from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The command as it was called."""

    store: "Store"
    templates: "Templates"
    settings: dict[str, str]
    agent_options: tuple[str, ...]
    asked: dict[str, Any]
    """The other options, by name."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--batch", required=True, metavar="SYSTEM", help="htcondor, slurm, gridengine or local.")
@click.option("-n", "n", type=int, default=None, help="How many pilots to start.")
@click.option("--keep", type=click.IntRange(min=1), default=None, help="Start as many as are missing to so many.")
@click.option("--every", type=Number(min=1), default=None, help="With --keep: again every so many seconds.")
@click.option(
    "--env",
    "environment",
    default=None,
    metavar="DIGEST|NAME",
    help="The packed environment that pilots bring along; else the run's only one. none: do without.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the submit template.")
@click.option("--template-dir", type=click.Path(path_type=Path), default=None, help="Where the site's templates are.")
@click.option("--force", is_flag=True, help="Queue pilots even where they would never start.")
@click.option("--doctor", "is_doctor", is_flag=True, help="Let two pilots (-n 2) examine RUN's filesystem together.")
@click.option("--dry-run", is_flag=True, help="Print exactly what would be submitted, and start nothing.")
@click.option("--dag", type=click.Path(path_type=Path), default=None, help="Write a DAG for DAGMan into this folder.")
@click.option("--plan", "plan", default=None, metavar="WORDS", help="With --dag: how `fsctx plan` is called first.")
@click.argument("agent_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- AGENT_OPTION...]")
def submit(run: Path, *, settings: tuple[str, ...], agent_options: tuple[str, ...], **asked: Any) -> None:
    """Start pilots that work on a run; each becomes one agent. What stands after `--` is passed to `fsctx agent`.

    With --batch local they run in the background of this host and outlive the terminal.
    """
    from fsctx.coordinator.submit import submit as submitting
    from fsctx.coordinator.submit.texts import Templates
    from fsctx.store import PosixStore

    _check_options(asked)
    call = _Call(
        store=PosixStore(run.absolute()),
        templates=Templates(folder=asked["template_dir"]),
        settings=_settings(settings),
        agent_options=_doctor_options(asked, agent_options) if asked["is_doctor"] else agent_options,
        asked=asked,
    )
    device_of(call.store.root, call.agent_options)  # refuses what `fsctx agent` would, before anything is started
    if asked["dag"] is not None:
        _write_dag(call)
        return
    system = submitting.batch_system(asked["batch"], call.templates)
    if asked["dry_run"]:
        _show(call, system)
    elif asked["keep"] is None:
        _start(call, system, n=asked["n"])
    else:
        _keep(call, system)


def _check_options(asked: dict[str, Any]) -> None:
    from fsctx.errors import InputError

    if (asked["n"] is None) == (asked["keep"] is None):
        raise InputError("pass either -n, how many pilots to start, or --keep, how many there shall be")
    if asked["every"] is not None and asked["keep"] is None:
        raise InputError("--every goes with --keep only")
    if asked["keep"] is not None and asked["batch"] == "local":
        raise InputError("--keep asks a batch system what is there: local pilots are started with -n")
    if asked["plan"] is not None and asked["dag"] is None:
        raise InputError("--plan goes with --dag only")
    if asked["plan"] is not None and asked["environment"] is not None:
        raise InputError("--env goes with a run that stands: `fsctx env add` makes the environment known to it")
    if asked["dag"] is not None and (asked["batch"] != "htcondor" or asked["keep"] is None):
        raise InputError("--dag goes with --batch htcondor and --keep")


def _show(call: _Call, system: "BatchSystem") -> None:
    """Print the text that would be submitted, and on stderr how the batch system is reached."""
    from fsctx.coordinator.submit import submit as submitting
    from fsctx.coordinator.submit.starting import request_for

    request = request_for(call.store, system.name, _asked(call, n=call.asked["n"] or call.asked["keep"]))
    click.echo(submitting.rendered(system, request, call.settings), nl=False)
    if system.reached:
        click.echo(f"through {system.reached}", err=True)


def _start(call: _Call, system: "BatchSystem", *, n: int) -> None:
    from fsctx.coordinator.submit import submit as submitting
    from fsctx.coordinator.submit.starting import start
    from fsctx.protocol import names

    started = start(call.store, system, _asked(call, n=n))
    done, request = started.submission, started.request
    jobs = ", ".join(pilot.id for pilot in done.pilots)
    said = f"started {n} pilot(s)" if system.name == "local" else f"queued {n} pilot(s), job {jobs},"
    click.echo(f"{said} as {done.name}; logs in {call.store.root}/logs")
    if request.environment:
        click.echo(f"note: pilots start from the packed environment {request.environment[:12]}")
    for line in (*started.objections, *(f"left out: {line}" for line in submitting.left_out(done.text))):
        click.echo(f"note: {line}")
    if request.excluded:
        click.echo(f"note: not on {', '.join(request.excluded)}: agents of this run could not work there")
    if done.reached:
        click.echo(f"through {done.reached}")
    if "--doctor" in call.agent_options:
        click.echo(
            f"what they find: in the log of the first of them, and in {call.store.root}/{names.DOCTOR} for agents"
        )
    else:
        click.echo(f"see them work: fsctx status {shlex.quote(str(call.store.root))} --watch")


def _keep(call: _Call, system: "BatchSystem") -> None:
    """Top pilots up, once or until the run is over."""
    import time

    from fsctx.coordinator.submit.keep import find_shortage

    while True:
        missing = find_shortage(call.store, system, call.asked["keep"])
        if missing.n:
            _start(call, system, n=missing.n)
        else:
            click.echo(f"nothing to add: {missing.why_none}")
        if missing.is_over or call.asked["every"] is None:
            return
        time.sleep(call.asked["every"])


def _write_dag(call: _Call) -> None:
    from fsctx.coordinator.submit import dag
    from fsctx.coordinator.submit.bootstrap import choose_environment
    from fsctx.protocol.manifest import read_manifest

    if call.asked["plan"] is None:
        read_manifest(call.store)
        choose_environment(call.store, call.asked["environment"])
    request = _dag_request(call)
    files = dag.render_dag(request, call.templates)
    if call.asked["dry_run"]:
        for name, text in files.items():
            click.echo(f"## {name}\n{text}")
        return
    click.echo(f"condor_submit_dag {dag.write_dag(request.folder, files)}")


def _dag_request(call: _Call) -> "DagRequest":
    from fsctx.coordinator.submit.bootstrap import interpreter
    from fsctx.coordinator.submit.dag import DagRequest
    from fsctx.errors import InputError

    run, folder, asked = str(call.store.root), call.asked["dag"].absolute(), call.asked
    try:
        plan = shlex.split(asked["plan"] or "")
    except ValueError as error:
        raise InputError(f"--plan {asked['plan']}: {error}: check its quotes") from None
    return DagRequest(
        name=call.store.root.name,
        folder=folder,
        called_in=Path.cwd(),
        python=interpreter(None),
        plan=() if asked["plan"] is None else ("plan", *plan, "--run", run),
        pilots=("submit", run, *_words_of(call)),
        collect=("collect", run, "-o", f"{folder}/verdicts.parquet"),
        environment=_environment_of_tools(),
    )


def _words_of(call: _Call) -> list[str]:
    """Return the options of a call that keeps pilots there as this one says, again and again."""
    asked = call.asked
    words = ["--batch", "htcondor", "--keep", str(asked["keep"]), "--every", str(asked["every"] or 60)]
    words += [word for key, value in call.settings.items() for word in ("--set", f"{key}={value}")]
    if asked["environment"] is not None:
        words += ["--env", asked["environment"]]
    if asked["template_dir"] is not None:
        words += ["--template-dir", str(asked["template_dir"].absolute())]
    return [*words, *(["--", *call.agent_options] if call.agent_options else [])]


def _environment_of_tools() -> dict[str, str]:
    """Return what the tools of HTCondor and fsctx need where nothing of the submitter's environment is."""
    import os

    found = {key: os.environ[key] for key in ("CONDOR_CONFIG", "PATH", "PYTHONPATH") if os.environ.get(key)}
    return {"PATH": "/usr/bin:/bin", **found}


def _asked(call: _Call, *, n: int) -> "Asked":
    from fsctx.coordinator.submit.starting import Asked

    return Asked(
        n=n,
        agent_options=call.agent_options,
        on_gpu=device_of(call.store.root, call.agent_options) != "cpu",
        environment=call.asked["environment"],
        settings=call.settings,
        is_forced=call.asked["force"],
    )


def _doctor_options(asked: dict[str, Any], agent_options: tuple[str, ...]) -> tuple[str, ...]:
    """Return what makes pilots look at the filesystem instead of working, on any node."""
    from fsctx.errors import InputError

    if asked["n"] != 2 or asked["dag"] is not None or agent_options:
        raise InputError("--doctor takes two pilots that are no agents: pass -n 2, and no agent options")
    return ("--doctor", "--device", "cpu")


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    from fsctx.errors import InputError

    for setting in given:
        if "=" not in setting:
            raise InputError(f"--set {setting}: must be KEY=VALUE")
    return dict(setting.split("=", 1) for setting in given)
