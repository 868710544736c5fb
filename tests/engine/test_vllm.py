"""vLLM itself on the small real model: the verdicts of hf, labels alone where asked, several processes that end."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import psutil
import pytest
import smollm2

from fsctx.agent.engines.base import Bound, BoundTask, Model, Row, Split
from fsctx.agent.engines.choose import make_engine
from fsctx.errors import EngineError, Misconfigured, Unfit
from fsctx.protocol.manifest import Method
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.load import load_template
from fsctx.templates.model import Generation, Label, Template

pytestmark = [pytest.mark.vllm, pytest.mark.model]

N_CLAIMS = 36
NAT = 1e-3
"""What the engine interface allows scores in float32 to depend on the batch: two engines are to be no further apart."""

METHODS: list[Method] = ["score", "generate"]
ENGINE = "vllm:kv_gb=0.5"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smollm2.converted(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def model(files: Path) -> Iterator[Model]:
    loaded = make_engine(ENGINE, device="cpu").load(files)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def hf(files: Path) -> Iterator[Model]:
    loaded = make_engine("hf", device="cpu").load(files)
    yield loaded
    loaded.close()


def rows() -> list[Row]:
    lines = (resources.files("fsctx.demo") / "claims.jsonl").read_text(encoding="utf-8").splitlines()
    return [Row(row=n, claim=json.loads(line)["claim"]) for n, line in enumerate(lines[:N_CLAIMS])]


def bind(model: Model, method: Method, template: Template | None = None) -> Bound:
    return model.bind(BoundTask(template=template or load_template("fever"), method=method))


def verdicts(bound: Bound) -> list[Verdict]:
    return bound.infer(bound.encode(rows()))


def is_tie(scores: tuple[float, ...]) -> bool:
    first, second, *_ = sorted(scores, reverse=True)
    return first - second <= 2 * NAT


def apart(found: list[Verdict], expected: list[Verdict]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(abs(a - b) for one, two in pairs for a, b in zip(one.scores or (), two.scores or (), strict=True))


def test_scores_and_verdicts_are_those_of_hf(model: Model, hf: Model) -> None:
    found, expected = verdicts(bind(model, "score")), verdicts(bind(hf, "score"))
    assert [one.input_tokens for one in found] == [two.input_tokens for two in expected]
    print(f"\n{N_CLAIMS} claims: scores of vllm and hf differ by {apart(found, expected):.1e} nat at most")  # noqa: T201 - what was measured
    assert apart(found, expected) <= NAT
    different = [two for one, two in zip(found, expected, strict=True) if one.verdict != two.verdict]
    assert all(is_tie(two.scores or ()) for two in different)


def test_scores_are_the_same_where_all_of_the_prompt_is_in_the_cache(model: Model) -> None:
    bound = bind(model, "score")
    first, again = verdicts(bound), verdicts(bound)
    assert apart(again, first) <= NAT


def test_labels_of_one_token_are_scored_as_hf_scores_them(model: Model, hf: Model) -> None:
    labels = tuple(Label(name=name, words=name) for name in ("true", "false"))
    template = replace(load_template("fever"), labels=labels, examples=())
    found, expected = (verdicts(bind(one, "score", template)) for one in (model, hf))
    assert apart(found, expected) <= NAT


def test_generated_texts_are_those_of_hf(model: Model, hf: Model) -> None:
    """Greedy text parts for good at one near tie, so that a few may differ."""
    found, expected = verdicts(bind(model, "generate")), verdicts(bind(hf, "generate"))
    n_same = sum(one == two for one, two in zip(found, expected, strict=True))
    print(f"\n{n_same} of {N_CLAIMS} generated texts of vllm and hf are equal")  # noqa: T201 - what was measured
    assert n_same >= 0.95 * N_CLAIMS


def test_every_answer_is_a_label_where_the_template_asks_for_a_choice(model: Model) -> None:
    template = load_template("fever")
    template = replace(template, generation=replace(template.generation, choice=True))
    found = verdicts(bind(model, "generate", template))
    assert {verdict.text for verdict in found} <= {label.words for label in template.labels}
    assert all(verdict.status == Status.OK for verdict in found)


def test_chats_that_rows_bring_are_written_as_hf_writes_them(model: Model, hf: Model) -> None:
    template = replace(load_template("messages"), generation=Generation(max_new_tokens=12))
    chats = [
        [{"role": "user", "content": "Name a colour."}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is ice cold?"}],
        [
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "And 3 + 3?"},
        ],
    ]
    rows = [Row(row=n, claim="-", columns={"messages": json.dumps(chat)}) for n, chat in enumerate(chats)]
    bounds = [bind(one, "generate", template) for one in (model, hf)]
    found, expected = (bound.infer(bound.encode(rows)) for bound in bounds)
    assert found == expected
    assert all(verdict.status == Status.OK and verdict.text for verdict in found)


def test_weights_that_give_no_numbers_fail_the_batch(files: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = Path(shutil.copytree(files, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    loaded = make_engine(ENGINE, device="cpu").load(broken)
    try:
        for method in METHODS:
            with pytest.raises(EngineError, match="not finite"):
                verdicts(bind(loaded, method))
    finally:
        loaded.close()


def test_a_claim_longer_than_the_window_costs_only_its_row(model: Model) -> None:
    long, short = bind(model, "score").encode([Row(row=0, claim="word " * 9000), Row(row=1, claim="Short.")])
    assert long.refused is not None
    assert long.refused.status == Status.TOO_LONG
    assert short.refused is None


def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    engine = make_engine(ENGINE, device="cpu")
    with pytest.raises(Misconfigured, match="lacks config"):
        engine.load(tmp_path)
    with pytest.raises(Unfit, match="is one file"):
        engine.load(smollm2.GGUF)


def test_a_split_that_the_heads_do_not_allow_is_refused(files: Path) -> None:
    with pytest.raises(Misconfigured, match="heads"):
        make_engine(ENGINE, device="cpu", split=Split(tp=2)).load(files)
    with pytest.raises(Misconfigured, match="stages of a pipeline"):
        make_engine(ENGINE, device="cpu", split=Split(pp=2)).load(files)


def test_a_split_model_gives_the_same_scores_and_none_of_its_processes_outlives_the_first(
    files: Path, model: Model
) -> None:
    expected = verdicts(bind(model, "score"))
    split = make_engine(ENGINE, device="cpu", split=Split(tp=3)).load(files)
    try:
        bound = bind(split, "score")
        assert apart(verdicts(bound), expected) <= NAT
        assert split.device == "3 × cpu"
        computing = psutil.Process(split.computing.pid)  # type: ignore[attr-defined]  # a VllmModel
        workers = [child for child in computing.children(recursive=True) if "Worker" in " ".join(child.cmdline())]
        assert len(workers) == 3
        computing.kill()
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive
        with pytest.raises(Unfit):
            verdicts(bound)
    finally:
        split.close()
