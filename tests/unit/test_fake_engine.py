"""The engine without a model, and choosing engines and devices."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.device import preflight
from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.choose import make_engine
from fsctx.agent.engines.fake import FakeBound, FakeEngine, gold, parse_options
from fsctx.errors import InputError, OutOfMemory, Unfit
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.load import load_template

NOWHERE = Path("nowhere")
FEVER = BoundTask(template=load_template("fever"), method="score")


def bind(options: str, slept: list[float] | None = None) -> FakeBound:
    sleep = (slept if slept is not None else []).append
    return FakeEngine(parse_options(options), sleep=sleep).load(NOWHERE).bind(FEVER)


def run(bound: FakeBound, n_rows: int = 8) -> list[Verdict]:
    encoded = bound.encode([Row(row=n, claim=f"claim {n}") for n in range(n_rows)])
    found = [v for part in infer_all(bound, encoded, budget=Budget(4096), should_stop=lambda: False) for v in part]
    return sorted(found, key=lambda verdict: verdict.row)


def test_verdicts_depend_on_claim_and_template_alone() -> None:
    assert run(bind("")) == run(bind("rows_per_s=5,load_s=1"))


def test_accuracy_is_the_share_of_verdicts_that_are_gold() -> None:
    found = run(bind("accuracy=0.8"), 2000)
    right = sum(v.verdict == gold(f"claim {v.row}", FEVER.template.label_names) for v in found)
    assert 0.75 < right / 2000 < 0.85
    assert all(v.verdict == gold(f"claim {v.row}", FEVER.template.label_names) for v in run(bind("accuracy=1")))


def test_templates_may_differ_in_accuracy() -> None:
    found = run(bind("accuracy=0.1,accuracy:fever=0.9,accuracy:other=0.2"), 2000)
    labels = FEVER.template.label_names
    right = sum(verdict.verdict == gold(f"claim {verdict.row}", labels) for verdict in found)
    assert 0.87 < right / 2000 < 0.93
    with pytest.raises(InputError, match="speed:fever"):
        parse_options("speed:fever=1")
    with pytest.raises(InputError, match="accuracy='high' is not float"):
        parse_options("accuracy:fever=high")
    for given in ("rows_per_s=-1", "load_s=nan", "load_s=inf", "crash_row=-2"):
        with pytest.raises(InputError, match="is out of range"):
            parse_options(given)


def test_speed_and_load_time_are_slept() -> None:
    slept: list[float] = []
    run(bind("rows_per_s=4,load_s=1.5", slept), 8)
    assert slept[0] == 1.5
    assert sum(slept[1:]) == pytest.approx(2.0)


def test_a_row_fails_when_asked_to() -> None:
    found = run(bind("fail_row=3"))
    assert [v.row for v in found if v.status == Status.ERROR] == [3]


def test_batches_that_are_too_large_do_not_fit() -> None:
    bound = bind("oom_rows=2")
    encoded = bound.encode([Row(row=n, claim="x") for n in range(3)])
    with pytest.raises(OutOfMemory):
        bound.infer(encoded)
    assert all(v.status == Status.OK for v in run(bound))


def test_a_long_claim_is_refused() -> None:
    bound = bind("max_words=2")
    refused = bound.encode([Row(row=0, claim="one two three")])[0].refused
    assert refused is not None
    assert refused.status == Status.TOO_LONG


def test_an_unfit_device_says_so() -> None:
    with pytest.raises(Unfit):
        bind("unfit=1")


def test_a_crash_kills_the_process() -> None:
    code = "from test_fake_engine import bind, run; run(bind('crash_row=2'))"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "spec", ["fake:speed=1", "fake:rows_per_s=fast", "fake:oom_rows=1.5", "hf:x=1", "auto:x=1", "llama", ""]
)
def test_an_unknown_engine_or_option_is_an_input_error(spec: str) -> None:
    with pytest.raises(InputError):
        make_engine(spec, device="cpu", dtype=None)


def test_an_unknown_dtype_is_an_input_error() -> None:
    with pytest.raises(InputError, match="bfloat16"):
        make_engine("fake", device="cpu", dtype="int3")


def test_auto_is_the_fake_engine_for_fake_contexts() -> None:
    assert make_engine("auto", device="cpu", dtype=None, kind="fake").name.startswith("fake")


def test_missing_libraries_are_named_with_the_remedy() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None);"
        "from fsctx.agent.engines.choose import make_engine; make_engine('hf', device='cpu', dtype=None)"
    )  # in a process of its own: modules that are imported twice are not the same to others' patches
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "Misconfigured" in said
    assert "pip install 'fsctx[hf]'" in said


def test_the_cpu_passes_its_preflight_without_torch() -> None:
    code = "import sys; from fsctx.agent.device import preflight; preflight('cpu'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert preflight("cpu").spec == "cpu"


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", "cuda:-1", ""])
def test_an_unknown_device_is_an_input_error(device: str) -> None:
    with pytest.raises(InputError):
        preflight(device)
