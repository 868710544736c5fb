"""A sweep over a model with and without an adapter."""

from pathlib import Path

import pytest
from e2e.running import finish, start_agent
from planning import make_plan

pytest.importorskip("transformers")
pytest.importorskip("peft")

from tiny_models import make_adapter, make_model

import fsctx


@pytest.mark.slow
def test_one_agent_does_a_model_with_and_without_its_adapter(tmp_path: Path) -> None:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(20)))
    base = make_model(tmp_path / "base")
    adapter = make_adapter(tmp_path / "adapter", base)
    make_plan(claims, run=tmp_path / "run", models=(str(base), str(adapter)), unit_rows=10)
    ((code, said),) = finish(start_agent(tmp_path / "run", "--device", "cpu", "--no-peers"))
    assert code == 0, said
    found = (
        fsctx.Run(tmp_path / "run").collect().to_pandas().pivot(index="id", columns="model", values="score_SUPPORTED")
    )
    assert list(found) == ["base", "base+adapter"]
    assert len(found) == 20
    assert ((found["base"] - found["base+adapter"]).abs() > 1e-3).all()
