"""An audit by the real engine: the same device agrees with itself, another dtype is told apart."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from click.testing import CliRunner
from e2e.running import finish, start_agent
from planning import make_plan
from tiny_models import make_model

from fsctx.cli import cli


def test_a_device_agrees_with_itself_and_another_dtype_is_measured(tmp_path: Path) -> None:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(40)))
    make_plan(claims, run=tmp_path / "run", models=(str(make_model(tmp_path / "model")),), unit_rows=8)
    assert finish(start_agent(tmp_path / "run", "--dtype", "float32"), timeout_s=120)[0][0] == 0

    def audit(*options: str) -> dict:
        command = ["audit", str(tmp_path / "run"), "--cache", str(tmp_path / "cache"), "--json", *options]
        result = CliRunner().invoke(cli, command, standalone_mode=False, catch_exceptions=False)
        assert result.return_value == 0
        return json.loads(result.stdout)

    same = audit("--replay", "20", "--dtype", "float32")
    (group,) = same["disagreements"]
    assert (same["rows"], group["flips"], group["makers"]["dtype"]) == (20, 0, "float32")
    assert group["largest"] < 1e-3
    other = audit("--replay", "100%", "--dtype", "bfloat16", "--tolerance", "100")  # random weights: far apart
    (group,) = other["disagreements"]
    assert (other["rows"], other["dtype"], group["makers"]["dtype"]) == (40, "bfloat16", "float32")
    assert group["largest"] > 1e-3
