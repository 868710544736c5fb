"""What the vllm engine makes of answers that are no numbers, with answers in place of vLLM's."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tiny_models import make_model

from fsctx.agent.batching import EVIDENCE, Budget, Health, infer_all
from fsctx.agent.engines.base import Bound, Row
from fsctx.agent.engines.scored import NOT_NUMBERS
from fsctx.agent.engines.vllm.generate import GenerateBound
from fsctx.agent.engines.vllm.messages import Answer, Loaded, Question, Read, Write
from fsctx.agent.engines.vllm.score import ScoreBound
from fsctx.errors import Unfit
from fsctx.protocol.verdicts import Status
from fsctx.templates.load import load_template

BAD = "🙂"


class Answers:
    """In the place of `Computing`: numbers, but for prompts with some token."""

    loaded = Loaded(device="cpu", dtype="float32", batch_tokens=64, window=512, vocabulary=512, block_tokens=32)

    def __init__(self) -> None:
        self.is_bad: Callable[[Question], bool] = lambda _: False

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        if isinstance(question, Write):
            return () if self.is_bad(question) else (5, 6)
        tokens = question.tokens
        return (float("nan"),) * len(tokens) if self.is_bad(question) else tuple(-1.0 - token for token in tokens)


def bind(answers: Answers, folder: Path, method: str) -> Bound:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_model(folder))
    make = ScoreBound if method == "score" else GenerateBound
    return make(answers, tokenizer, load_template("fever"))  # type: ignore[arg-type]  # what it asks of a Computing


def ids_of(question: Question) -> tuple[int, ...]:
    return question.ids if isinstance(question, Read | Write) else question.context


@pytest.mark.parametrize("method", ["score", "generate"])
def test_a_row_without_numbers_costs_no_other_and_where_there_are_only_such_the_node_is_left(
    tmp_path: Path, method: str
) -> None:
    answers = Answers()
    bound = bind(answers, tmp_path, method)
    good, bad = bound.encode([Row(row=0, claim="x"), Row(row=1, claim=BAD)])
    ids = [row.payload.ids if method == "generate" else row.payload.context for row in (good, bad)]
    (token, *_) = set(ids[1]) - set(ids[0])
    answers.is_bad = lambda question: token in ids_of(question)
    found = bound.infer([good, bad])
    assert (found[1].status, found[1].error) == (Status.ERROR, NOT_NUMBERS)
    assert found[0].error != NOT_NUMBERS
    encoded = bound.encode([Row(row=n, claim=BAD) for n in range(EVIDENCE)])
    with pytest.raises(Unfit, match="another node"):
        list(infer_all(bound, encoded, budget=Budget(10**6), should_stop=lambda: False, health=Health()))
