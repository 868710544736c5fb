"""Model folders that cannot be used, and GGUF files converted."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import smollm2  # noqa: E402
from tiny_models import make_model  # noqa: E402

from fsctx.agent.engines.base import BoundTask, Row  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine  # noqa: E402
from fsctx.errors import EngineError, Misconfigured, OutOfMemory  # noqa: E402
from fsctx.store.mounts import Mount  # noqa: E402
from fsctx.templates.load import load_template  # noqa: E402


def load(path: Path) -> None:
    HfEngine(device="cpu").load(path)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"config\.json"):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (make_model(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(Misconfigured, match="no weights"):
        load(tmp_path)


def test_pickled_weights_are_refused_with_the_way_to_convert_them(tmp_path: Path) -> None:
    (make_model(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(Misconfigured, match="save_pretrained"):
        load(tmp_path)


def test_a_model_that_brings_its_own_code_is_refused(tmp_path: Path) -> None:
    config = json.loads((make_model(tmp_path) / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text("raise SystemExit(99)")
    with pytest.raises(Misconfigured, match="code of its own"):
        load(tmp_path)


def test_weights_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Misconfigured, match="cannot be loaded"):
        load(tmp_path)


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    config = json.loads((make_model(tmp_path) / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Misconfigured, match="lacks"):
        load(tmp_path)


def test_weights_of_other_sizes_than_the_config_says_are_refused_by_name(tmp_path: Path) -> None:
    rewrite(make_model(tmp_path), intermediate_size=64)
    with pytest.raises(Misconfigured, match=r"first model\.layers\.0\.mlp\.down_proj\.weight \(32 × 48, not 32 × 64\)"):
        load(tmp_path)


def test_weights_over_a_network_are_read_and_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path)

    def mapped(*_: object, **__: object) -> None:
        raise OSError("mapped")

    monkeypatch.setattr("transformers.modeling_utils.safe_open", mapped)
    with pytest.raises(Misconfigured, match="mapped"):
        load(tmp_path)
    monkeypatch.setattr("fsctx.agent.engines.hf.files.mounts", lambda: [Mount(folder="/", kind="nfs4")])
    load(tmp_path)


@pytest.mark.parametrize("content", ["not json", "[]", '{"model_type": "nothing-known"}'])
def test_a_config_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (make_model(tmp_path) / "config.json").write_text(content)
    with pytest.raises(Misconfigured):
        load(tmp_path)


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF, or so it says")
    with pytest.raises(Misconfigured, match=r"model\.gguf"):
        load(tmp_path / "model.gguf")


def test_running_out_of_memory_is_told_from_other_errors() -> None:
    from fsctx.agent.engines.hf.errors import guarded

    def raising(error: Exception) -> None:
        raise error

    with pytest.raises(OutOfMemory):
        guarded(lambda: raising(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(EngineError, match="RuntimeError: shapes"):
        guarded(lambda: raising(RuntimeError("shapes\ndiffer")))


@pytest.mark.model
@pytest.mark.slow
def test_a_gguf_file_becomes_a_folder_that_any_reader_takes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = smollm2.converted(tmp_path_factory.getbasetemp())
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["rope_theta"] == 100_000
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.iterdir())
    template = load_template("fever")
    bound = HfEngine(device="cpu").load(folder).bind(BoundTask(template=template, method="score"))
    (verdict,) = bound.infer(bound.encode([Row(row=0, claim="The Danube flows through Vienna.")]))
    assert verdict.verdict == "SUPPORTED"


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
        {"model_type": "vit", "architectures": ["ViTForImageClassification"]},
    ],
)
def test_a_model_that_neither_continues_nor_classifies_a_text_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    rewrite(make_model(tmp_path), **changes)
    with pytest.raises(Misconfigured, match="neither continues a text nor classifies"):
        load(tmp_path)


def test_an_adapter_is_never_left_out_in_silence(tmp_path: Path) -> None:
    (make_model(tmp_path) / "adapter_config.json").write_text("{}")
    with pytest.raises(Misconfigured, match="a model and a LoRA adapter"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("method", "modules", "packages"),
    [
        ("bitsandbytes", ["bitsandbytes"], "bitsandbytes"),
        ("quanto", ["optimum", "optimum.quanto"], "optimum-quanto"),
        ("compressed-tensors", ["compressed_tensors"], "compressed-tensors"),
        ("gptq", ["optimum", "gptqmodel"], "optimum gptqmodel"),
        ("awq", ["gptqmodel"], "gptqmodel"),
    ],
)
def test_a_quantised_model_whose_libraries_are_not_installed_names_the_packages(
    tmp_path: Path, method: str, modules: list[str], packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    rewrite(make_model(tmp_path), quantization_config={"quant_method": method})
    with pytest.raises(Misconfigured, match=f"pip install {packages}$"):
        load(tmp_path)
