"""A real environment, packed, and a real agent that runs from it on a node that has nothing but an interpreter."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from e2e.running import finish, n_published, wait_until
from environments import BASE, PACKAGES, PYTHON, make_venv
from fabricate import FabricatedRun, fabricate

from fsctx.cli.submit import submit
from fsctx.coordinator.environment.add import add
from fsctx.coordinator.environment.pack import pack
from fsctx.coordinator.submit.bootstrap import pilot_command
from fsctx.coordinator.submit.record import read_submissions
from fsctx.protocol import names
from fsctx.protocol.processes import is_dead

PATIENCE_S = 120

pytestmark = pytest.mark.slow


def show_nothing(step: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    python = make_venv(folder / "venv", packages=PACKAGES, is_real=True)
    pack(folder / "env.tar.gz", python, progress=lambda done, total: None)
    shutil.rmtree(folder / "venv")
    return folder / "env.tar.gz"


def start(run: FabricatedRun, archive: Path, cache: Path, *options: str, python: str) -> "subprocess.Popen[str]":
    """Start a pilot with an empty environment; what fsctx of the checkout has is out of its reach."""
    digest = add(run.store, archive, progress=show_nothing).digest
    command = pilot_command(run.root, digest, python=python, options=("--cache", str(cache), *options))
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={}, cwd="/", stdout=pipe, stderr=pipe, text=True)


def interpreters() -> list[str]:
    """This interpreter, and the system's where it is another one of the same version."""
    system = os.path.realpath("/usr/bin/python3")
    return [BASE, system] if system.endswith(f"python{PYTHON}") and system != BASE else [BASE]


@pytest.mark.parametrize("python", interpreters())
def test_an_agent_runs_from_a_packed_environment_on_a_node_with_only_an_interpreter(
    archive: Path, tmp_path: Path, python: str
) -> None:
    run, cache = fabricate(tmp_path / "run"), tmp_path / "cache"
    ((code, said),) = finish(start(run, archive, cache, "--engine", "fake", python=python), timeout_s=PATIENCE_S)
    assert code == 0, said
    assert "unpacked" in said
    assert n_published(run) == run.geometry.n_units
    (folder,) = (cache / "environments").iterdir()
    assert os.path.realpath(folder / "bin" / "python") == python
    where = "import fsctx, pyarrow; print(fsctx.__file__, pyarrow.__file__)"
    loaded = subprocess.run(
        [folder / "bin" / "python", "-P", "-c", where], env={}, capture_output=True, text=True, check=True
    )
    assert all(path.startswith(str(folder)) for path in loaded.stdout.split())


def test_submitted_pilots_bring_the_runs_only_environment_along(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = fabricate(tmp_path / "run"), tmp_path / "cache"
    digest = add(run.store, archive, progress=show_nothing).digest
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    words = ["--batch", "local", "-n", "2", "--", "--engine", "fake", "--cache", str(cache)]
    done = CliRunner().invoke(submit, [str(run.root), *words])
    assert digest[:12] in done.output
    (submission,) = read_submissions(run.store)
    processes = [pilot.process for pilot in submission.pilots if pilot.process is not None]
    wait_until(lambda: all(map(is_dead, processes)), timeout_s=PATIENCE_S)
    logs = [(run.root / pilot.log).read_text() for pilot in submission.pilots if pilot.log]
    assert n_published(run) == run.geometry.n_units, logs
    assert sum("unpacked" in log for log in logs) == 1
    record = json.loads(run.store.read(names.agent_record(run.store.list(names.AGENTS)[0])))
    assert record["submission"] == submission.name


def test_sigterm_reaches_the_agent_which_saves_and_leaves(archive: Path, tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    pilot = start(run, archive, tmp_path / "cache", "--engine", "fake:rows_per_s=2", python=BASE)
    wait_until(lambda: any(run.store.list(names.bucket_folder(names.LEASES, 0))), timeout_s=PATIENCE_S)
    pilot.send_signal(signal.SIGTERM)
    ((code, said),) = finish(pilot, timeout_s=PATIENCE_S)
    assert code == 0, said
    assert "leaves" in said
    (agent,) = run.store.list(names.AGENTS)
    record = json.loads(run.store.read(names.agent_record(agent)))
    assert record["process"]["pid"] == pilot.pid


def test_the_next_node_gets_the_environment_from_an_agent(archive: Path, tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=400)  # for minutes, however long the second one takes to begin
    slow = ("--engine", "fake:rows_per_s=2", "--peer-address", "127.0.0.1")
    first = start(run, archive, tmp_path / "node-1", *slow, python=BASE)
    try:
        wait_until(lambda: any(name.endswith(".json") for name in run.store.list(names.PEERS)), timeout_s=PATIENCE_S)
        second = start(run, archive, tmp_path / "node-2", "--engine", "fake", "--max-units", "1", python=BASE)
        ((code, said),) = finish(second, timeout_s=PATIENCE_S)
        assert code == 0, said
        assert "from peers" in said
        assert "shared filesystem" not in said
    finally:
        first.terminate()
        finish(first)
