"""What every engine promises (fsctx/agent/engines/base.py), on every engine that can run here."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.engines.base import UNSPLIT, Bound, BoundTask, Engine, Model, Row, Split
from fsctx.agent.engines.choose import make_engine
from fsctx.protocol.manifest import Method
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.load import load_template

METHODS: list[Method] = ["score", "generate"]

CLAIMS = [
    "The Danube flows through Vienna.",
    "Mozart wrote the opera Carmen.",
    "Земля вращается вокруг Солнца.",
    "水在一百度沸腾。",
    "The architect of the town hall disliked cats, dogs, and every other animal that he ever met in his life.",
    "!",
]


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        "hf",
        pytest.param("stages", marks=pytest.mark.slow),
        pytest.param("shares", marks=pytest.mark.slow),
        pytest.param("smollm2", marks=[pytest.mark.model, pytest.mark.slow]),
        pytest.param("vllm", marks=[pytest.mark.model, pytest.mark.vllm]),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param != "fake":
        pytest.importorskip("torch")
        pytest.importorskip("transformers")
    return str(request.param)


@pytest.fixture(scope="module")
def engine(kind: str) -> Engine:
    split = {"stages": Split(pp=2), "shares": Split(tp=2)}.get(kind, UNSPLIT)
    spec = {"fake": "fake", "vllm": "vllm:kv_gb=0.5"}.get(kind, "hf")
    return make_engine(spec, device="cpu", dtype=None, split=split)


@pytest.fixture(scope="module")
def model(kind: str, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    loaded = engine.load(_files(kind, tmp_path_factory))
    yield loaded
    loaded.close()


def _files(kind: str, folders: pytest.TempPathFactory) -> Path:
    match kind:
        case "hf" | "stages" | "shares":
            from tiny_models import make_model

            return make_model(folders.mktemp("tiny"))
        case "smollm2" | "vllm":
            import smollm2

            return smollm2.converted(folders.getbasetemp())
        case _:
            return Path("nowhere")


def bind(model: Model, method: Method) -> Bound:
    return model.bind(BoundTask(template=load_template("fever"), method=method))


def rows_of(claims: list[str], first: int = 100) -> list[Row]:
    return [Row(row=first + n, claim=claim) for n, claim in enumerate(claims)]


def run(bound: Bound, rows: list[Row], tokens: int) -> dict[int, Verdict]:
    parts = infer_all(bound, bound.encode(rows), budget=Budget(tokens), should_stop=lambda: False)
    return {verdict.row: verdict for part in parts for verdict in part}


def test_an_engine_says_its_name_and_version(engine: Engine) -> None:
    name, version = engine.name.split(" ")
    assert name in ("fake", "hf", "vllm")
    assert version


def test_a_model_says_where_it_is_and_how_much_fits(model: Model) -> None:
    assert model.device in ("cpu", "fake", "2 × cpu")
    assert model.dtype == "float32"
    assert model.batch_tokens > 0


@pytest.mark.parametrize("method", METHODS)
def test_every_row_has_one_verdict_in_order(model: Model, method: Method) -> None:
    bound = bind(model, method)
    encoded = bound.encode(rows_of(CLAIMS))
    assert [row.row for row in encoded] == [row.row for row in rows_of(CLAIMS)]
    assert [verdict.row for verdict in bound.infer(encoded)] == [row.row for row in encoded]


def test_scores_are_one_negative_number_per_label_and_the_highest_is_the_verdict(model: Model) -> None:
    labels = load_template("fever").label_names
    for verdict in run(bind(model, "score"), rows_of(CLAIMS), 10_000).values():
        assert verdict.scores is not None
        assert len(verdict.scores) == len(labels)
        assert max(verdict.scores) < 0
        assert verdict.verdict == labels[verdict.scores.index(max(verdict.scores))]
        assert (verdict.text, verdict.output_tokens, verdict.status) == (None, 0, Status.OK)
        assert verdict.input_tokens > 0


def test_generated_text_is_kept_and_gives_the_verdict_or_an_error_with_a_reason(model: Model) -> None:
    for verdict in run(bind(model, "generate"), rows_of(CLAIMS), 10_000).values():
        assert verdict.scores is None
        assert verdict.text is not None
        assert verdict.output_tokens > 0
        assert (verdict.status == Status.OK) == (verdict.verdict is not None) == (verdict.error is None)


@pytest.mark.parametrize("method", METHODS)
def test_verdicts_do_not_depend_on_the_batch_or_on_row_numbers(model: Model, method: Method) -> None:
    bound, chance = bind(model, method), random.Random(1)
    alone = run(bound, rows_of(CLAIMS), 1)
    order = chance.sample(range(len(CLAIMS)), len(CLAIMS))
    together = run(bound, rows_of([CLAIMS[n] for n in order], first=0), 100_000)
    for place, n in enumerate(order):
        seen, expected = together[place], alone[100 + n]
        assert replace(seen, row=0, scores=None) == replace(expected, row=0, scores=None)
        assert seen.scores == (None if expected.scores is None else pytest.approx(expected.scores, abs=1e-3))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_do_is_no_error(model: Model, method: Method) -> None:
    assert bind(model, method).encode([]) == []


def test_a_model_is_bound_to_several_tasks_at_a_time(model: Model) -> None:
    first, second = bind(model, "score"), bind(model, "generate")
    before = run(first, rows_of(CLAIMS[:2]), 1000)
    run(second, rows_of(CLAIMS[:2]), 1000)
    assert run(first, rows_of(CLAIMS[:2]), 1000) == before


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_encoded_on_other_threads_while_the_device_works(model: Model, method: Method) -> None:
    bound = bind(model, method)
    expected = bound.encode(rows_of(CLAIMS))
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(bound.encode, rows_of(CLAIMS)) for _ in range(12)]
        run(bound, rows_of(CLAIMS[:2]), 10_000)
        assert all(future.result() == expected for future in futures)
