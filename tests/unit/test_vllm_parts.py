"""What the vllm engine decides without vLLM: labels as questions, memory, environment, which engine is chosen."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsctx.agent.engines.base import Split
from fsctx.agent.engines.choose import choose_engine, choose_for, make_engine, refusal
from fsctx.agent.engines.vllm.environment import environment
from fsctx.agent.engines.vllm.installed import Installed, find_vllm
from fsctx.agent.engines.vllm.labels import questions, scores
from fsctx.agent.engines.vllm.messages import Answer, Follow, Ids, Job, Question, Read
from fsctx.agent.engines.vllm.options import VllmOptions
from fsctx.agent.engines.vllm.prefix import shared_tokens
from fsctx.agent.engines.vllm.room import MOST, SPARE_BYTES, kv_bytes, memory_share
from fsctx.errors import InputError, Misconfigured

GB = 1 << 30
JOB = Job(files=Path("m"), kind="cuda", index=0, dtype=None, split=Split(), options=VllmOptions())


def logprob(before: Ids, token: int) -> float:
    """What a model would say."""
    return -1.0 - (hash((before, token)) % 1000) / 100


def answer(question: Question) -> Answer:
    match question:
        case Read(ids=ids, tokens=tokens):
            return tuple(logprob(ids, token) for token in tokens)
        case Follow(context=context, tokens=tokens):
            return tuple(logprob((*context, *tokens[:n]), token) for n, token in enumerate(tokens))
        case _:
            raise AssertionError(question)


@given(st.sets(st.lists(st.integers(0, 3), min_size=3, max_size=3).map(tuple), min_size=2, max_size=5))
def test_a_score_is_the_sum_of_its_tokens_log_probabilities_however_it_is_asked(found: set[Ids]) -> None:
    labels, context = tuple(sorted(found)), (7, 8)
    asked = questions(context, labels)
    expected = [sum(logprob((*context, *ids[:n]), token) for n, token in enumerate(ids)) for ids in labels]
    assert scores(labels, [answer(question) for question in asked]) == pytest.approx(expected)
    assert len(asked) <= len(labels)


def test_labels_of_one_token_are_read_behind_one_prompt() -> None:
    assert questions((5, 6), ((1,), (2,), (3,))) == [Read(ids=(5, 6), tokens=(1, 2, 3))]


def test_long_labels_take_a_prompt_each() -> None:
    assert all(isinstance(question, Follow) for question in questions((5,), ((1, 2, 3), (2, 3, 4))))


def test_what_prompts_share_is_counted_in_whole_blocks() -> None:
    assert shared_tokens([(1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 7), (1, 2, 3, 4, 5, 9)], 2) == 4
    assert shared_tokens([(1, 2, 3), (1, 2, 3)], 2) == 2
    assert shared_tokens([(1,), (2,)], 1) == shared_tokens([], 4) == 0


def test_the_share_of_a_gpus_memory_is_of_what_is_free() -> None:
    assert memory_share(free_bytes=80 * GB, total_bytes=80 * GB) == MOST
    held = memory_share(free_bytes=30 * GB, total_bytes=80 * GB)
    assert held * 80 * GB <= 30 * GB - SPARE_BYTES
    assert held == pytest.approx(29 / 80, abs=1e-3)
    assert memory_share(free_bytes=SPARE_BYTES // 2, total_bytes=80 * GB) == 0


def test_keys_and_values_on_a_cpu_leave_room_for_other_agents() -> None:
    assert kv_bytes(40 * GB) == 4 * GB
    assert kv_bytes(1 * GB) == GB
    assert kv_bytes(4000 * GB) == 16 * GB


def test_vllm_is_told_to_stay_offline_and_silent_whatever_the_user_set() -> None:
    seen = {"VLLM_NO_USAGE_STATS": "0", "VLLM_LOGGING_LEVEL": "DEBUG", "HOME": "/home/me", "TMPDIR": "/tmp"}
    told = environment(seen, JOB, Path("/scratch"))
    assert (told["VLLM_NO_USAGE_STATS"], told["HF_HUB_OFFLINE"], told["TMPDIR"]) == ("1", "1", "/scratch")
    assert (told["VLLM_LOGGING_LEVEL"], told["HOME"]) == ("DEBUG", "/home/me")
    assert "CUDA_VISIBLE_DEVICES" not in told


def test_nothing_is_compiled_unless_asked_for() -> None:
    compiling = replace(JOB, options=VllmOptions(compile=1))
    assert environment({}, JOB, Path("s"))["TORCH_COMPILE_DISABLE"] == "1"
    assert "TORCH_COMPILE_DISABLE" not in environment({}, compiling, Path("s"))


def test_vllm_sees_the_gpus_from_the_chosen_one_on() -> None:
    job = replace(JOB, index=1, split=Split(tp=2))
    assert environment({}, job, Path("s"))["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert environment({"CUDA_VISIBLE_DEVICES": "4,5,7"}, job, Path("s"))["CUDA_VISIBLE_DEVICES"] == "5,7"


FOR_GPUS = Installed(version="0.32.0", is_for_gpus=True)


@pytest.mark.parametrize(
    ("spec", "device", "kind", "vllm", "name", "why"),
    [
        ("auto", "cpu", "hf", FOR_GPUS, "hf", "CPU"),
        ("auto", "cuda:0", "hf", FOR_GPUS, "vllm", "vllm 0.32.0 is installed"),
        ("auto", "cuda:0", "hf", None, "hf", "no vllm for GPUs"),
        ("auto", "cuda:0", "gguf", replace(FOR_GPUS, is_for_gpus=False), "hf", "no vllm for GPUs"),
        ("auto", "cuda:0", "fake", FOR_GPUS, "fake", "fake model"),
        ("auto", "cuda:0", "classifier", FOR_GPUS, "hf", "a classifier, which is no work for vllm"),
        ("auto", "cuda:0", "lora", FOR_GPUS, "hf", "a LoRA adapter, which is no work for vllm"),
        ("vllm:start_s=5", "cpu", "hf", None, "vllm", "--engine vllm:start_s=5"),
    ],
)
def test_the_engine_is_chosen_by_device_and_by_what_is_installed_and_says_why(
    spec: str, device: str, kind: str, vllm: Installed | None, name: str, why: str
) -> None:
    choice = choose_engine(spec, device=device, kind=kind, vllm=vllm)
    assert choice.name == name
    assert why in choice.why


def test_a_run_with_several_kinds_of_contexts_names_each_engine() -> None:
    assert choose_for("auto", device="cpu", kinds={"fake", "hf", "gguf"}).name == "fake and hf"


@pytest.mark.parametrize("kind", ["classifier", "lora"])
def test_vllm_and_split_models_keep_off_what_hf_alone_does(kind: str) -> None:
    assert "--engine vllm does not do: use --engine hf or auto" in str(refusal("vllm:start_s=5", kind))
    assert "can't be split: do without --tp 2 --pp 1" in str(refusal("auto", kind, split=Split(tp=2)))
    with pytest.raises(Misconfigured, match="use --engine hf or auto"):
        make_engine("vllm", device="cpu", kind=kind)


def test_the_library_that_merges_adapters_is_named_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "peft: pip install 'fsctx[lora]'" in str(refusal("auto", "lora"))
    assert refusal("auto", "hf") is None
    assert refusal("fake", "lora") is None


@pytest.mark.skipif(find_vllm() is not None, reason="it is installed")
def test_vllm_that_is_not_installed_is_named_with_the_remedy() -> None:
    with pytest.raises(Misconfigured, match=r"pip install 'fsctx\[vllm\]'"):
        make_engine("vllm", device="cpu")


@pytest.mark.parametrize("options", ["speed=1", "start_s=soon", "compile=0.5", "kv_gb=-1", "start_s=nan"])
def test_an_option_of_vllm_that_is_none_is_an_input_error(options: str) -> None:
    with pytest.raises(InputError, match=options.partition("=")[0]):
        make_engine(f"vllm:{options}", device="cpu")


def test_log_probabilities_that_are_not_finite_stay_visible() -> None:
    assert math.isnan(scores(((1,), (2,)), [(math.nan, -1.0)])[0])
