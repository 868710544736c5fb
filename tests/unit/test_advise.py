"""How a model is spread over a node: what is legal, what it costs, what is chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fsctx.cli import cli
from fsctx.coordinator.advise.advise import Advice, Node, Objective, Option, advise, pareto, splits
from fsctx.coordinator.advise.cost import PIECES_PER_STAGE, Layout, Work, batch_s, memory_gb, rates_of
from fsctx.coordinator.advise.devices import find_device, read_devices
from fsctx.coordinator.advise.models import find_shape
from fsctx.errors import InputError
from fsctx.protocol import codec
from fsctx.protocol.measured import Measured
from fsctx.protocol.shapes import ModelShape, shape_of

SMOLLM2 = {
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 24,
    "intermediate_size": 8192,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
QWEN_32B = {
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 64,
    "intermediate_size": 27648,
    "vocab_size": 152064,
}
DEVICES = read_devices()
WORK = Work()


def shape(config: dict[str, Any]) -> ModelShape:
    return shape_of(config, where="config.json")


def node(name: str, count: int) -> Node:
    return Node(device=DEVICES[name], count=count, rates=rates_of(DEVICES[name]))


def advice(config: dict[str, Any], where: Node, objective: Objective, sla_s: float | None = None) -> Advice:
    return advise(shape(config), where, objective=objective, work=WORK, sla_s=sla_s)


def offline(ref: str) -> Path:
    raise AssertionError(f"the hub was asked for {ref}")


def test_parameters_are_those_that_the_models_are_known_for() -> None:
    assert shape(SMOLLM2).params == pytest.approx(1.71e9, rel=0.01)
    assert shape(QWEN_32B).params == pytest.approx(32.8e9, rel=0.01)


def test_of_a_mixture_all_experts_are_held_and_some_computed() -> None:
    mixture = shape({**SMOLLM2, "num_local_experts": 8, "num_experts_per_tok": 2})
    plain = shape(SMOLLM2)
    assert mixture.layer_params - plain.layer_params == 7 * 3 * 2048 * 8192
    assert mixture.active_params - plain.active_params == 3 * 2048 * 8192


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4}, 4),
        ({"quant_method": "awq", "w_bit": 4}, 4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}, 8),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, 4),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": None}}, None),
        (None, None),
    ],
)
def test_quantised_weights_take_the_bits_that_their_configuration_names(
    quantised: dict[str, Any] | None, bits: int | None
) -> None:
    whole, found = shape(QWEN_32B), shape(QWEN_32B | {"quantization_config": quantised})
    assert found.weight_bits == bits
    layout = Layout(replicas=1, tp=2, pp=1, batch=1)
    spared = memory_gb(whole, layout, WORK, 2) - memory_gb(found, layout, WORK, 2)
    assert spared == pytest.approx(whole.n_layers * whole.layer_params / 2 * (2 - (bits or 16) / 8) / 1e9)
    rates = rates_of(DEVICES["A10"])
    assert batch_s(found, layout, WORK, rates) <= batch_s(whole, layout, WORK, rates)


def test_only_whole_heads_and_layers_are_legal() -> None:
    small = shape({**SMOLLM2, "num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 2})
    assert set(splits(small, 6)) == {(1, 1), (1, 2), (3, 1), (3, 2)}


def test_a_model_that_fits_one_device_is_replicated_for_throughput() -> None:
    for name in ("A10", "H100", "TITAN X Pascal"):
        choice = advice(SMOLLM2, node(name, 4), "throughput").choice
        assert (choice.layout.replicas, choice.layout.tp, choice.layout.pp) == (4, 1, 1)


@pytest.mark.parametrize("name", ["A10", "L4", "L40S"])
def test_tensor_parallelism_has_the_latency_pipelines_the_throughput_and_hybrids_are_between(name: str) -> None:
    where, large = node(name, 4), shape(QWEN_32B)

    def best(tp: int, pp: int) -> tuple[float, float]:
        found = [
            option
            for option in advise(large, where, objective="latency", work=WORK).options
            if (option.layout.tp, option.layout.pp) == (tp, pp)
        ]
        return min(option.latency_s for option in found), max(option.rows_per_s for option in found)

    (tensor_s, tensor_rows), (hybrid_s, hybrid_rows), (stages_s, stages_rows) = best(4, 1), best(2, 2), best(1, 4)
    assert tensor_s < hybrid_s < stages_s
    assert tensor_rows < hybrid_rows < stages_rows


def test_the_choice_follows_the_objective_where_one_device_is_too_small() -> None:
    where = node("A10", 4)
    quick, busy = advice(QWEN_32B, where, "latency").choice, advice(QWEN_32B, where, "throughput").choice
    assert (quick.layout.tp, quick.layout.pp, quick.layout.batch) == (4, 1, 1)
    assert (busy.layout.tp, busy.layout.pp) == (1, 4)


def test_a_limit_of_latency_is_kept_and_an_impossible_one_refused_with_the_least() -> None:
    where = node("A10", 4)
    free = advice(QWEN_32B, where, "throughput").choice
    bound = advice(QWEN_32B, where, "throughput", sla_s=0.5).choice
    assert bound.latency_s <= 0.5 < free.latency_s
    assert bound.rows_per_s < free.rows_per_s
    with pytest.raises(InputError, match=r"the quickest takes \d+ ms"):
        advice(QWEN_32B, where, "throughput", sla_s=0.001)


def test_a_model_that_no_way_fits_is_refused_with_what_each_device_would_need() -> None:
    with pytest.raises(InputError, match=r"2 T4 do not hold a model of 32.8 billion .* need 3\d\.\d GB and has 16"):
        advice(QWEN_32B, node("T4", 2), "throughput")


def test_memory_falls_with_every_device_and_grows_with_the_batch() -> None:
    large = shape(QWEN_32B)

    def held(tp: int, pp: int, batch: int = 8) -> float:
        return memory_gb(large, Layout(replicas=1, tp=tp, pp=pp, batch=batch), WORK, 2)

    assert held(1, 1) > held(2, 1) > held(2, 2)
    assert held(1, 1) > held(1, 2) > held(2, 2)
    assert held(1, 1, 64) > held(1, 1, 8)
    assert held(1, 1) == pytest.approx(65.5 + 1.5, abs=1)


def test_more_claims_at_a_time_take_longer_and_do_more_a_second() -> None:
    times = [
        batch_s(shape(SMOLLM2), Layout(replicas=1, tp=1, pp=1, batch=n), WORK, rates_of(DEVICES["A10"]))
        for n in (1, 8, 64)
    ]
    assert times == sorted(times)
    assert times[0] > times[1] / 8 > times[2] / 64


def test_nothing_on_the_front_is_beaten_and_nothing_off_it_is_better() -> None:
    options = advice(QWEN_32B, node("A10", 8), "throughput").options
    front = pareto(options)
    assert len(front) > 1

    def beats(one: Option, other: Option) -> bool:
        return one.latency_s <= other.latency_s and one.rows_per_s >= other.rows_per_s

    assert not [one for one in front if any(beats(other, one) for other in options if other is not one)]
    assert all(any(beats(one, other) for one in front) for other in options)


def test_what_was_measured_is_gone_by() -> None:
    measured = Measured(
        device="A10", engine="hf 1", dtype="float32", model="m", flops_per_s=1e12, layer_s=0.0, rows_per_s=1.0
    )
    rates = rates_of(DEVICES["A10"], measured)
    assert (rates.flops_per_s, rates.layer_s, rates.number_bytes) == (1e12, 0.0, 4)
    one = Layout(replicas=1, tp=1, pp=1, batch=256)
    assert batch_s(shape(SMOLLM2), one, WORK, rates) > 10 * batch_s(shape(SMOLLM2), one, WORK, rates_of(DEVICES["A10"]))


def test_devices_are_found_by_what_drivers_call_them() -> None:
    names = {
        "NVIDIA A10": "A10",
        "NVIDIA A100-SXM4-80GB": "A100-80",
        "NVIDIA TITAN X (Pascal)": "TITAN X Pascal",
        "h200": "H200",
        "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
        "Tesla V100-PCIE-32GB": "V100",
    }
    assert {name: find_device(name, DEVICES).name for name in names} == names
    for unknown in ("A100", "B300", ""):
        with pytest.raises(InputError, match="use one of A10, "):
            find_device(unknown, DEVICES)


def test_the_engine_cuts_batches_as_is_reckoned() -> None:
    pytest.importorskip("transformers")
    from fsctx.agent.engines.hf.ranks import pipeline

    assert pipeline.PIECES_PER_STAGE == PIECES_PER_STAGE


def test_a_gguf_file_tells_its_dimensions(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_block_count(3)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(48)
    writer.add_tensor("token_embd.weight", np.zeros((100, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = find_shape(str(tmp_path / "tiny.gguf"), fetch=offline)
    assert (found.n_layers, found.n_kv_heads, found.head_dim, found.vocab, found.is_tied) == (3, 2, 8, 100, True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "cannot be read"), ("[]", "is not a model's configuration"), ("{}", "has no hidden_size"), (None, "cannot")],
)
def test_what_is_no_configuration_is_refused_by_name(tmp_path: Path, content: str | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=f"config.json.*{reason}"):
        find_shape(str(tmp_path), fetch=offline)
    with pytest.raises(InputError, match="does not exist"):
        find_shape("./nowhere", fetch=offline)


def test_the_command_prints_a_table_or_all_of_it_as_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_32B))
    asked = ["advise", "--model", str(tmp_path), "--device", "A10", "--count", "4"]
    said = CliRunner().invoke(cli, asked, catch_exceptions=False).output
    assert "The choice: 1 × tp 1 × pp 4" in said
    assert "fsctx agent RUN --tp 1 --pp 4\n" in said
    found = json.loads(CliRunner().invoke(cli, [*asked, "--json", "--objective", "latency"]).output)
    assert found["choice"]["layout"] == {"replicas": 1, "tp": 4, "pp": 1, "batch": 1}
    assert found["choice"] in found["front"]


def test_a_measured_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    (tmp_path / "measured.json").write_text('{"schema": 1}')
    asked = ["advise", "--model", str(tmp_path), "--device", "A10", "--measured", str(tmp_path / "measured.json")]
    with pytest.raises(InputError, match="not what fsctx tune prints"):
        CliRunner().invoke(cli, asked, catch_exceptions=False)
    good = Measured(device="A10", engine="hf", dtype="float16", model="m", flops_per_s=9e13, layer_s=0, rows_per_s=1)
    (tmp_path / "measured.json").write_bytes(codec.encode_pretty(good))
    assert CliRunner().invoke(cli, asked).exit_code == 0
