"""bench/gpu.py as a user calls it, on a CPU, so that it works where there is a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPT = Path(__file__).parents[2] / "bench" / "gpu.py"
PARTS = ("rates", "scoring", "agent", "transformers", "generating", "larger", "loads", "vllm", "splits")


def run_bench(*options: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environ)


def document(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_all_parts_are_measured_on_a_cpu() -> None:
    done = run_bench("--device", "cpu", "--quick")
    found = document(done)
    assert (done.returncode, found["failed"]) == (0, {}), done.stdout + done.stderr
    measured = {line["part"].split()[0] for line in found["lines"]} | set(found["notes"])
    assert measured | set(found["skipped"]) == set(PARTS)
    assert set(found["skipped"]) <= {"vllm"}
    scored = [line for line in found["lines"] if line["part"] == "scoring"]
    assert {line["dtype"] for line in scored} == {"float32", "bfloat16", "float16"}
    assert {line["way"] for line in scored} == {"score, shared prefix", "score, masked prefix"}
    first, *others = [line for line in scored if line["dtype"] == "float32"]
    assert first["nat"] is None
    assert all(line["nat"] < 1e-3 and line["as_float32"] == 1 for line in others)
    assert all(line["of_ceiling"] > 0 for line in scored)
    loads = found["notes"]["loads"]
    assert loads["cache_empty"]["fetched_gb"] > 0 == loads["cache_filled"]["fetched_gb"]


def test_parts_that_there_is_no_time_for_are_skipped_and_the_json_line_comes_all_the_same() -> None:
    done = run_bench("--device", "cpu", "--quick", "--budget-s", "0")
    found = document(done)
    assert done.returncode == 0
    assert set(found["skipped"]) == set(PARTS)
    assert all("the time is out" in reason for reason in found["skipped"].values())
    assert found["card"]["torch"] == torch.__version__


def test_told_to_end_it_prints_what_it_found() -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--quick"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        first = next(line for line in bench.stdout if line.startswith("rates"))
        bench.terminate()
        said, _ = bench.communicate(timeout=120)
    assert bench.returncode == 143
    assert "float32" in first
    assert json.loads(said.splitlines()[-1])["notes"]["rates"]["float32"]["tflops"] > 0


def test_a_model_that_is_not_there_is_refused_in_a_line(tmp_path: Path) -> None:
    done = run_bench("--device", "cpu", "--model", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (2, "")
    assert [f"{tmp_path / 'none'} is not there" in line for line in done.stderr.splitlines()] == [True]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_a_line_and_ends_with_2() -> None:
    done = run_bench()
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "cuda:0 is not on this node" in line
    assert "--device cpu" in line
