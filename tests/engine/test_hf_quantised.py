"""Checkpoints that bitsandbytes quantised, with the real library where it is installed."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("bitsandbytes")

from engine.test_hf_score import CLAIMS, bind, by_definition, verdicts  # noqa: E402
from tiny_models import make_model  # noqa: E402

from fsctx.templates.load import load_template  # noqa: E402


def quantised(base: Path, folder: Path, **how: Any) -> Path:
    """Write a quantised copy of a model; return the folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    config = BitsAndBytesConfig(**how)
    AutoModelForCausalLM.from_pretrained(base, quantization_config=config, device_map={"": "cpu"}).save_pretrained(
        folder
    )
    return folder


@pytest.mark.parametrize(
    "how",
    [{"load_in_8bit": True}, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}],
    ids=lambda how: "-".join(how),
)
def test_a_quantised_checkpoint_scores_as_the_library_does_and_near_the_whole_one(
    tmp_path: Path, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "num_hidden_layers": 2}
    base = make_model(tmp_path / "base", **sizes, initializer_range=0.1)
    folder = quantised(base, tmp_path / "quantised", **how)
    template = load_template("true-false")
    bound = bind(folder, template)
    caplog.clear()
    found = verdicts(bound, CLAIMS)
    assert not caplog.text
    assert bound.tree is not None, "the shared prefix is not used"
    for claim, whole, verdict in zip(CLAIMS, verdicts(bind(base, template), CLAIMS), found, strict=True):
        assert verdict.scores == pytest.approx(by_definition(folder, template, claim), abs=0.05)
        assert verdict.scores == pytest.approx(whole.scores, abs=2)
        assert verdict.scores != pytest.approx(whole.scores, abs=1e-3)
