"""One model in several processes: the same verdicts as in one, and a clear end when one of them ends."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tiny_models import make_model

from fsctx.agent.engines.base import BoundTask, Model, Row, Split
from fsctx.agent.engines.choose import engines
from fsctx.agent.engines.hf.engine import HfEngine
from fsctx.agent.engines.hf.files import check_split
from fsctx.agent.engines.hf.ranks import model as model_module
from fsctx.agent.engines.hf.ranks.messages import Infer
from fsctx.agent.engines.hf.ranks.model import MultiRank
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.errors import Misconfigured, Unfit
from fsctx.protocol.manifest import Context, Method
from fsctx.protocol.verdicts import Verdict
from fsctx.templates.load import load_template
from fsctx.templates.model import Label

ROWS = [
    Row(row=n, claim=claim)
    for n, claim in enumerate(
        [
            "The Danube flows through Vienna.",
            "水在一百度沸腾。",
            "!",
            "Mozart wrote the opera Carmen, and all those that are put down to Bizet.",
            "Земля вращается вокруг Солнца.",
        ]
    )
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(
    scope="module", params=[Split(tp=2), Split(pp=2), pytest.param(Split(tp=2, pp=2), marks=pytest.mark.slow)], ids=str
)
def split(request: pytest.FixtureRequest, files: Path) -> Iterator[MultiRank]:
    assert isinstance(request.param, Split)
    model = HfEngine(device="cpu", split=request.param).load(files)
    assert isinstance(model, MultiRank)
    yield model
    model.close()


def verdicts(model: Model, method: Method) -> list[Verdict]:
    bound = model.bind(BoundTask(template=load_template("fever"), method=method))
    return bound.infer(bound.encode(ROWS))


def test_scores_are_those_of_one_process(files: Path, split: MultiRank) -> None:
    expected = verdicts(HfEngine(device="cpu").load(files), "score")
    found = verdicts(split, "score")
    for one, other in zip(found, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-3)
        assert (one.row, one.verdict, one.input_tokens) == (other.row, other.verdict, other.input_tokens)


def test_texts_are_those_of_one_process(files: Path, split: MultiRank) -> None:
    assert verdicts(split, "generate") == verdicts(HfEngine(device="cpu").load(files), "generate")


def test_what_a_rank_refuses_is_raised_and_the_model_goes_on(split: MultiRank) -> None:
    template = load_template("fever")
    twin = replace(template, labels=(*template.labels, Label(name="TWIN", words=template.labels[0].words)))
    with pytest.raises(Misconfigured, match="cannot be scored"):
        split.bind(BoundTask(template=twin, method="score"))
    assert len(verdicts(split, "score")) == len(ROWS)


def test_when_a_rank_is_killed_all_end_and_calls_say_so(files: Path) -> None:
    model = HfEngine(device="cpu", split=Split(pp=2)).load(files)
    assert isinstance(model, MultiRank)
    bound = model.bind(BoundTask(template=load_template("fever"), method="score"))
    batch = bound.encode(ROWS)
    pids = model.pids
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(Unfit, match="rank 1 ended with exit code -9"):
        bound.infer(batch)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    for call in (lambda: bound.infer(batch), lambda: bound.encode(ROWS)):
        with pytest.raises(Unfit, match="ended"):
            call()


def test_a_rank_that_fails_alone_is_not_waited_for(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "STRAGGLERS_S", 0.2)
    model = HfEngine(device="cpu", split=Split(tp=2)).load(files)
    assert isinstance(model, MultiRank)
    bound = model.bind(BoundTask(template=load_template("fever"), method="score"))
    batch = bound.encode(ROWS)
    model.tell(0, Infer(0, batch))
    model.tell(1, Infer(7, batch))  # which knows of no such task
    with pytest.raises(Unfit, match=r"rank 0 waits for one that failed \(KeyError: 7"):
        model.collect()
    assert not model.ran_out


def test_with_less_than_the_full_context_each_load_is_a_new_process_that_ends_with_the_model(files: Path) -> None:
    expected = [one.verdict for one in verdicts(HfEngine(device="cpu").load(files), "score")]
    options = AgentOptions(engine="hf", context=ContextMode.PARTIAL, cache=files)
    engine, pids = (
        engines(options, device="cpu")(Context(digest="", kind="hf", name="", origin="", files=(), chunk_bytes=0)),
        [],
    )
    for _ in range(2):
        model = engine.load(files)
        assert isinstance(model, MultiRank)
        assert model.device == "cpu"
        assert [one.verdict for one in verdicts(model, "score")] == expected
        pids += model.pids
        model.close()
    assert len({*pids, os.getpid()}) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Split(tp=4), "4 attention heads and 2 of keys and values, which --tp 4 does not divide"),
        (Split(tp=3), "which --tp 3 does not divide"),
        (Split(pp=4), "has 3 layers, too few for --pp 4"),
    ],
)
def test_a_split_that_the_model_does_not_allow_is_refused_before_anything_starts(
    files: Path, wanted: Split, reason: str
) -> None:
    with pytest.raises(Misconfigured, match=reason):
        HfEngine(device="cpu", split=wanted).load(files)


def test_a_model_that_transformers_cannot_split_is_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "mamba")
    for wanted in (Split(tp=2), Split(pp=2)):
        with pytest.raises(Misconfigured, match="transformers can't"):
            check_split(folder, wanted)
