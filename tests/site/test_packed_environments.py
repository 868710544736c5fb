"""Pilots of real batch systems that bring their software along: the nodes have an interpreter, and no fsctx."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from clusters import beds
from clusters.beds import Bed, wait_until
from environments import PACKAGES, make_venv

from fsctx.coordinator.environment.pack import pack
from fsctx.coordinator.submit.record import read_submissions

N_ROWS = 160


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("environment")
    venv = make_venv(folder / "venv", packages=PACKAGES, is_real=True)
    pack(folder / "env.tar.gz", venv, progress=lambda done, total: None)
    shutil.rmtree(folder / "venv")
    yield folder / "env.tar.gz"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "open_bed",
    [
        pytest.param(lambda: beds.condor(nodes="n1:2:4096:1xA100 n2:2:4096:1xL4"), marks=pytest.mark.condor),
        pytest.param(lambda: beds.slurm(nodes="s1:2:4096:1xa100 s2:2:4096:1xl4"), marks=pytest.mark.slurm),
        pytest.param(beds.gridengine, marks=pytest.mark.gridengine),
    ],
    ids=["htcondor", "slurm", "gridengine"],
)
def test_pilots_unpack_an_environment_and_work_from_it(
    open_bed: Callable[[], AbstractContextManager[Bed]], archive: Path
) -> None:
    with open_bed() as bed:
        run = bed.make_run("packed", rows=N_ROWS, unit_rows=4)
        bed.fsctx("env", "add", run.folder, shutil.copy(archive, bed.shared))
        # a job of HTCondor has a folder of its own, which goes with it; others would leave the cache in /tmp
        cache = () if bed.batch == "htcondor" else ("--cache", str(bed.shared / "node"))
        agent = ("--", "--engine", "fake:rows_per_s=4", *cache)
        said = bed.fsctx("submit", run.folder, "--batch", bed.batch, "-n", "2", *agent)
        assert "pilots start from the packed environment" in said
        wait_until(lambda: len(run.working()) == 2, what=lambda: run.fsctx("status"))
        run.wait_done()
        proof = run.collect()
        assert (proof["rows"], proof["ok"], proof["missing"], proof["duplicates"]) == (N_ROWS, N_ROWS, 0, 0)
        (submission,) = read_submissions(run.store)
        logs = (run.store.root / str(submission.pilots[0].log)).glob("*.log")
        n_unpacked = sum("unpacked" in log.read_text() for log in logs)
        assert n_unpacked == (1 if cache else 2)
        assert {record.submission for record in run.records()} == {submission.name}
