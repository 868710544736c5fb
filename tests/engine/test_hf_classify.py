"""Classifiers by the hf engine, on tiny random models: against the model called alone."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import make_classifier  # noqa: E402

from fsctx.agent.batching import EVIDENCE, Budget, Health, infer_all  # noqa: E402
from fsctx.agent.engines.base import Bound, BoundTask, Model, Row, Split  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine  # noqa: E402
from fsctx.errors import Misconfigured, Unfit  # noqa: E402
from fsctx.protocol.verdicts import Status, Verdict  # noqa: E402
from fsctx.templates.load import load_template, parse_template  # noqa: E402
from fsctx.templates.model import Template  # noqa: E402

LABELS = '[labels]\nSUPPORTED = "Entailment"\nREFUTED = "contradiction"\n"NOT ENOUGH INFO" = "neutral"\n'
PAIR = parse_template('system = "{{ evidence }}"\nuser = "{{ claim }}"\n' + LABELS, where="pair")
SINGLE = parse_template('text = "{{ claim }}"\n' + LABELS, where="single")
ROWS = [
    Row(row=n, claim=claim, columns={"evidence": evidence})
    for n, (claim, evidence) in enumerate(
        [
            ("The Danube flows through Vienna.", "Vienna lies on the Danube."),
            ("!", "水在一百度沸腾。" * 3),
            ("A rather longer claim about nothing in particular", "It is"),
            ("x", "y"),
        ]
    )
]


def load(folder: Path) -> Model:
    return HfEngine(device="cpu").load(folder)


def bind(folder: Path, template: Template) -> Bound:
    return load(folder).bind(BoundTask(template=template, method="score"))


def run(bound: Bound, rows: list[Row], tokens: int = 10_000) -> list[Verdict]:
    parts = infer_all(bound, bound.encode(rows), budget=Budget(tokens), should_stop=lambda: False)
    return sorted((verdict for part in parts for verdict in part), key=lambda verdict: verdict.row)


@pytest.mark.parametrize("tokens", [1, 10_000])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_scores_are_those_of_the_model_alone_each_for_the_class_of_the_labels_words(
    tmp_path: Path, kind: str, tokens: int
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = make_classifier(tmp_path, kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    for template in (PAIR, SINGLE):
        for row, verdict in zip(ROWS, run(bind(folder, template), ROWS, tokens), strict=True):
            texts = [row.columns["evidence"], row.claim] if template is PAIR else [row.claim]
            with torch.inference_mode():
                steps = model(**tokenizer(*texts, return_tensors="pt")).logits[0].log_softmax(-1)
            expected = [float(steps[n]) for n in (0, 2, 1)]  # entailment, contradiction, neutral
            assert verdict.scores == pytest.approx(expected, abs=1e-5)
            assert verdict.verdict == template.label_names[expected.index(max(expected))]
            assert verdict.status == Status.OK


@pytest.mark.parametrize(("kind", "window"), [("bert", 128), ("roberta", 126)])
def test_a_text_longer_than_the_positions_is_refused_and_never_cut(tmp_path: Path, kind: str, window: int) -> None:
    bound = bind(make_classifier(tmp_path, kind), SINGLE)
    (probe,) = bound.encode([Row(row=0, claim="!")])
    fits = Row(row=0, claim="!" * (1 + window - probe.n_tokens))
    long = Row(row=1, claim=fits.claim + "!")
    first, second = run(bound, [fits, long])
    assert (first.status, first.input_tokens) == (Status.OK, window)
    assert (second.status, second.input_tokens) == (Status.TOO_LONG, window + 1)
    assert str(window) in str(second.error)


def test_a_row_without_the_column_of_the_pair_costs_only_itself(tmp_path: Path) -> None:
    good, bad = run(bind(make_classifier(tmp_path), PAIR), [ROWS[0], Row(row=1, claim="x")])
    assert (good.status, bad.status) == (Status.OK, Status.ERROR)


def test_labels_whose_words_are_no_class_are_refused_at_bind_with_the_classes(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="entailment, neutral, contradiction"):
        bind(make_classifier(tmp_path), load_template("fever-raw"))


def test_classes_without_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="id2label"):
        load(make_classifier(tmp_path, names=("LABEL_0", "LABEL_1", "LABEL_2")))


def test_a_classifier_does_not_generate_and_has_no_examples(tmp_path: Path) -> None:
    model = load(make_classifier(tmp_path))
    with pytest.raises(Misconfigured, match="--method score"):
        model.bind(BoundTask(template=PAIR, method="generate"))
    examples = '[[examples]]\nclaim = "x"\nlabel = "REFUTED"\n'
    with pytest.raises(Misconfigured, match="examples"):
        model.bind(
            BoundTask(template=parse_template('text = "{{ claim }}"\n' + LABELS + examples, where="t"), method="score")
        )


def test_a_classifier_is_not_split(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="classifier"):
        HfEngine(device="cpu", split=Split(tp=2)).load(make_classifier(tmp_path))


def test_a_classifier_that_gives_no_numbers_is_unfit(tmp_path: Path) -> None:
    model = load(make_classifier(tmp_path))
    bound = model.bind(BoundTask(template=SINGLE, method="score"))
    with torch.no_grad():
        bound._encoder.model.classifier.bias[0] = float("nan")  # type: ignore[attr-defined]
    (verdict,) = run(bound, ROWS[:1])
    assert verdict.status == Status.ERROR
    encoded = bound.encode([Row(row=n, claim="x") for n in range(EVIDENCE)])
    with pytest.raises(Unfit, match="another node"):
        list(infer_all(bound, encoded, budget=Budget(10**6), should_stop=lambda: False, health=Health()))
