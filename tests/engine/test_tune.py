"""A device measured by a real engine, and what is made of the times."""

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from click.testing import CliRunner
from planning import make_plan
from tiny_models import make_model

from fsctx.agent.engines.base import Model
from fsctx.agent.engines.hf.engine import HfEngine, load_on
from fsctx.agent.tune import Trial, calibrate
from fsctx.cli import cli
from fsctx.errors import Misconfigured
from fsctx.protocol import names
from fsctx.protocol.measured import Measured


def test_rates_are_found_again_from_times_that_were_made_of_them() -> None:
    def trial(passes: int, flops: float) -> Trial:
        return Trial(passes=passes, flops=flops, seconds=passes * 24 * 0.002 + flops / 5e12)

    flops_per_s, layer_s = calibrate(trial(1, 1e10), trial(3, 9e12), n_layers=24)
    assert flops_per_s == pytest.approx(5e12)
    assert layer_s == pytest.approx(0.002)


def test_times_that_tell_nothing_of_the_layers_give_a_rate_alone() -> None:
    slow = Trial(passes=1, flops=1e9, seconds=3.0)
    assert calibrate(slow, Trial(passes=2, flops=8e9, seconds=4.0), n_layers=4) == (2e9, 0.0)
    assert calibrate(slow, slow, n_layers=4) == (1e9 / 3.0, 0.0)


def test_tune_measures_a_run_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(40)))
    make_plan(claims, run=tmp_path / "run", models=(str(make_model(tmp_path / "model")),), unit_rows=8)
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    asked = ["tune", str(tmp_path / "run"), "--device", "cpu", "--cache", str(tmp_path / "cache")]
    result = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert "verdicts differ from float32's" in result.stderr
    measured = json.loads(result.stdout)
    assert set(measured) == {"schema", *(field.name for field in dataclasses.fields(Measured))}
    assert (measured["device"], measured["dtype"]) == ("cpu", "float32")
    assert measured["half"]["dtype"] == "bfloat16"
    assert 0 < measured["half"]["rows"] <= 40
    assert measured["half"]["is_advised"] == ("--dtype bfloat16" in result.stderr)
    assert measured["flops_per_s"] > 0
    assert measured["rows_per_s"] > 0
    assert sorted(path for path in (tmp_path / "run").rglob("*")) == before
    assert not list((tmp_path / "run" / names.AGENTS).iterdir())


def test_where_half_precision_fails_float32_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: HfEngine, files: Path) -> Model:
        if self._dtype == "bfloat16":
            raise Misconfigured("a layer computes in float32 alone")
        return load_on(files, device="cpu", dtype="float32")

    (tmp_path / "claims.txt").write_text("a claim\nanother\n")
    make_plan(tmp_path / "claims.txt", run=tmp_path / "run", models=(str(make_model(tmp_path / "model")),))
    monkeypatch.setattr(HfEngine, "load", load)
    asked = ["tune", str(tmp_path / "run"), "--device", "cpu", "--cache", str(tmp_path / "c")]
    result = CliRunner().invoke(cli, asked, catch_exceptions=False)
    measured = json.loads(result.stdout)
    assert (measured["dtype"], measured["half"]) == ("float32", None)
    assert "bfloat16 is no choice here: a layer computes in float32 alone" in result.stderr


def test_a_precision_that_was_asked_for_is_measured_alone(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("a claim\nanother\n")
    make_plan(tmp_path / "claims.txt", run=tmp_path / "run", models=(str(make_model(tmp_path / "model")),))
    asked = ["tune", str(tmp_path / "run"), "--device", "cpu", "--dtype", "bfloat16", "--cache", str(tmp_path / "c")]
    measured = json.loads(CliRunner().invoke(cli, asked, catch_exceptions=False).stdout)
    assert (measured["dtype"], measured["half"]) == ("bfloat16", None)


def test_a_run_of_the_fake_model_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("a claim\n")
    make_plan(tmp_path / "claims.txt", run=tmp_path / "run")
    result = CliRunner().invoke(cli, ["tune", str(tmp_path / "run")])
    assert "planned with the fake model" in str(result.exception)
