"""Quantised checkpoints, with the real library of each kind where it is installed."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engine.test_hf_score import CLAIMS, bind, by_definition, verdicts  # noqa: E402
from tiny_models import make_model  # noqa: E402

from fsctx.templates.load import load_template  # noqa: E402

SIZES = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "num_hidden_layers": 2}


def by_bitsandbytes(base: Path, folder: Path, **how: Any) -> None:
    pytest.importorskip("bitsandbytes")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = BitsAndBytesConfig(**how)
    model = AutoModelForCausalLM.from_pretrained(base, quantization_config=config, device_map={"": "cpu"})
    model.save_pretrained(folder)


def by_rounding(base: Path, folder: Path, *, bits: int, **how: Any) -> None:
    """Write what compressed-tensors reads: each row of a layer's weights as integers of its own scale, some packed."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import pack_to_int32
    from safetensors.torch import load_file, save_file

    tensors, top = load_file(base / "model.safetensors"), 2 ** (bits - 1) - 1
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        weight, layer = tensors.pop(name), name.removesuffix("weight")
        scale = weight.abs().amax(1, keepdim=True) / top
        whole = (weight / scale).round().to(torch.int8)
        packed = {
            f"{layer}weight_packed": pack_to_int32(whole, bits),
            f"{layer}weight_shape": torch.tensor(whole.shape),
        }
        tensors |= {f"{layer}weight_scale": scale} | (packed if bits < 8 else {name: whole})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "channel"}
    quantised = {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, **how.pop("also", {})}},
        "ignore": ["lm_head"],
        **how,
    }
    config = json.loads((base / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantised}))


def by_awq(base: Path, folder: Path) -> None:
    """Write what AWQ's libraries read, without their search for scales: eight columns of 4 bits in each integer."""
    pytest.importorskip("gptqmodel")
    from safetensors.torch import load_file, save_file

    tensors, group = load_file(base / "model.safetensors"), 32
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        weight, layer = tensors.pop(name).T, name.removesuffix("weight")
        groups = weight.reshape(len(weight) // group, group, -1)
        scales = groups.abs().amax(1) / 7
        tensors[f"{layer}qweight"] = _packed(((groups / scales[:, None]).round() + 8).reshape(weight.shape))
        tensors[f"{layer}qzeros"] = _packed(torch.full_like(scales, 8))
        tensors[f"{layer}scales"] = scales.half()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantised = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    config = json.loads((base / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantised}))


def _packed(numbers: Any) -> Any:
    places = enumerate((0, 2, 4, 6, 1, 3, 5, 7))
    return sum(numbers[:, column::8].long() << 4 * place for place, column in places).to(torch.int32).contiguous()


TOKENS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
WAYS: dict[str, Callable[[Path, Path], None]] = {
    "bitsandbytes-int8": partial(by_bitsandbytes, load_in_8bit=True),
    "bitsandbytes-nf4": partial(by_bitsandbytes, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "compressed-int8": partial(by_rounding, bits=8, format="int-quantized", also={"input_activations": TOKENS}),
    "awq": by_awq,
    "compressed-int4": partial(by_rounding, bits=4, format="pack-quantized"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_quantised_checkpoint_scores_as_the_library_does_and_near_the_whole_one(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    base = make_model(tmp_path / "base", **SIZES, initializer_range=0.1)
    folder = Path(shutil.copytree(base, tmp_path / "quantised", ignore=shutil.ignore_patterns("model*", "config*")))
    WAYS[way](base, folder)
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
