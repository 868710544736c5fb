"""LoRA adapters: planned with their model, merged into it, and scored as peft scores the two side by side."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from engine.test_hf_score import CLAIMS, bind, by_definition, verdicts  # noqa: E402
from planning import offline, quiet  # noqa: E402
from tiny_models import make_adapter, make_classifier, make_model  # noqa: E402

from fsctx.agent.engines.base import BoundTask, Row, Split  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine  # noqa: E402
from fsctx.cache import NodeCache  # noqa: E402
from fsctx.coordinator.plan.contexts import find_models  # noqa: E402
from fsctx.errors import Misconfigured  # noqa: E402
from fsctx.protocol.manifest import ADAPTER  # noqa: E402
from fsctx.templates.load import load_template, parse_template  # noqa: E402

FEVER = load_template("fever")


def on_node(folder: Path, adapter: Path, base: Path | None = None) -> Path:
    """Plan with an adapter and fetch the context as an agent does; return what an engine is given."""
    (model,) = find_models([str(adapter)], fetch=offline, progress=quiet, base=str(base) if base else None)
    return NodeCache(folder / "cache").fetch(model.context).path


def test_a_model_with_its_adapter_scores_as_peft_does_and_as_the_model_alone_does_not(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    adapter = make_adapter(tmp_path / "adapter", base, lora_alpha=16, seed=1)
    template = load_template("true-false")
    bound = bind(on_node(tmp_path, adapter), template)
    assert bound.tree is not None, "the shared prefix is not used"
    alone = verdicts(bind(base, template), CLAIMS)
    adapted = verdicts(bound, CLAIMS)
    for claim, verdict in zip(CLAIMS, adapted, strict=True):
        assert verdict.scores == pytest.approx(by_definition(base, template, claim, adapter=adapter), abs=1e-3)
    assert [v.verdict for v in alone] != [v.verdict for v in adapted]


@pytest.mark.parametrize(
    "config",
    [
        {"use_rslora": True, "r": 8, "lora_alpha": 3},
        {"use_dora": True},
        {"target_modules": ["q_proj", "lm_head", "embed_tokens"]},
        {"modules_to_save": ["lm_head"]},
        {"bias": "all"},
        {"target_modules": "all-linear", "rank_pattern": {"q_proj": 2}},
    ],
    ids=lambda config: "-".join(config),
)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_whatever_peft_can_merge_is_merged_also_where_input_and_output_share_their_weights(
    tmp_path: Path, kind: str, config: dict[str, Any]
) -> None:
    base = make_model(tmp_path / "base", kind)
    adapter = make_adapter(tmp_path / "adapter", base, **config)
    (verdict,) = verdicts(bind(on_node(tmp_path, adapter), FEVER), CLAIMS[:1])
    assert verdict.scores == pytest.approx(by_definition(base, FEVER, CLAIMS[0], adapter=adapter), abs=1e-3)


def test_a_classifier_takes_an_adapter_too(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    base = make_classifier(tmp_path / "base")
    auto = AutoModelForSequenceClassification
    adapter = make_adapter(tmp_path / "adapter", base, auto=auto, task_type="SEQ_CLS", target_modules=["query"])
    words = '[labels]\nyes = "entailment"\nno = "contradiction"\n'
    task = BoundTask(template=parse_template('text = "{{ claim }}"\n' + words, where="t"), method="score")
    found = []
    for folder in (base, on_node(tmp_path, adapter)):
        bound = HfEngine(device="cpu").load(folder).bind(task)
        found += bound.infer(bound.encode([Row(row=0, claim="The Danube flows through Vienna.")]))
    assert found[0].scores != pytest.approx(found[1].scores, abs=1e-3)


def test_the_adapters_own_tokenizer_goes_before_the_models(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    adapter = make_adapter(tmp_path / "adapter", base)
    for path in make_model(tmp_path / "other", chat=None).glob("*token*"):
        (adapter / path.name).write_bytes(path.read_bytes())
    with pytest.raises(Misconfigured, match="chat template"):
        bind(on_node(tmp_path, adapter), FEVER)


@pytest.mark.parametrize(
    ("made_for", "config", "said"),
    [
        ("mamba", {"target_modules": ["in_proj"]}, "in_proj"),
        ("gemma3", {"target_modules": ["q_proj"], "modules_to_save": ["q_norm"]}, "q_norm"),
        ("wide", {}, "size mismatch"),
        ("deep", {}, r"the model has no .*layers\.3"),
        ("shallow", {}, r"it lacks .*layers\.2"),
    ],
)
def test_an_adapter_for_another_model_is_refused_in_one_line(
    tmp_path: Path, made_for: str, config: dict[str, Any], said: str
) -> None:
    changes = {"wide": {"intermediate_size": 64}, "deep": {"num_hidden_layers": 4}, "shallow": {"num_hidden_layers": 2}}
    kind = "llama" if made_for in changes else made_for
    other = make_model(tmp_path / "other", kind, **changes.get(made_for, {}))
    adapter = make_adapter(tmp_path / "adapter", other, **config)
    files = on_node(tmp_path, adapter, base=make_model(tmp_path / "base"))
    with pytest.raises(Misconfigured, match=f"does not fit its model .*{said}") as caught:
        HfEngine(device="cpu").load(files)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "config", [{"peft_type": "LOHA"}, {"megatron_config": {"a": 1}, "megatron_core": "one.to.import"}]
)
def test_an_adapter_of_another_kind_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    adapter = make_adapter(make_model(tmp_path) / ADAPTER, tmp_path)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(Misconfigured, match="merge it yourself"):
        HfEngine(device="cpu").load(tmp_path)


def test_weights_of_an_adapter_that_are_pickled_are_not_read(tmp_path: Path) -> None:
    adapter = make_adapter(make_model(tmp_path) / ADAPTER, tmp_path)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(Misconfigured, match=r"has no adapter_model\.safetensors"):
        HfEngine(device="cpu").load(tmp_path)


def test_a_model_with_an_adapter_is_not_split(tmp_path: Path) -> None:
    make_adapter(make_model(tmp_path) / ADAPTER, tmp_path)
    with pytest.raises(Misconfigured, match="LoRA adapter, which can't be split"):
        HfEngine(device="cpu", split=Split(tp=2)).load(tmp_path)
