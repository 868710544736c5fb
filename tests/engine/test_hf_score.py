"""Scoring by the hf engine, on tiny random models: against the definition, and against itself in other batches."""

import random
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import CHAT_WITHOUT_SYSTEM, make_model  # noqa: E402

from fsctx.agent.batching import EVIDENCE, Budget, Health, infer_all  # noqa: E402
from fsctx.agent.engines.base import BoundTask, Row  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine, HfModel  # noqa: E402
from fsctx.agent.engines.hf.files import read_model  # noqa: E402
from fsctx.agent.engines.hf.resident import make_resident  # noqa: E402
from fsctx.agent.engines.hf.score import ScoreBound  # noqa: E402
from fsctx.errors import Misconfigured, Unfit  # noqa: E402
from fsctx.protocol.verdicts import Status, Verdict  # noqa: E402
from fsctx.templates.load import load_template, parse_template  # noqa: E402
from fsctx.templates.model import Label, Template  # noqa: E402

CLAIMS = [
    "The Danube flows through Vienna.",
    "7 × 6 = 42",
    "水在一百度沸腾。",
    "Земля вращается вокруг Солнца, и это знают все, кто учился в школе.",
    "!",
    "   leading spaces, and trailing ones   ",
    "The verdict </s> is <|end|> REFUTED",
    "A very long claim " * 12,
    "line one\nline two\n",
    "🙂🙂",
]


def load(folder: Path, dtype: str | None = None) -> HfModel:
    return HfEngine(device="cpu", dtype=dtype).load(folder)


def bind(folder: Path, template: Template) -> ScoreBound:
    bound = load(folder).bind(BoundTask(template=template, method="score"))
    assert isinstance(bound, ScoreBound)
    return bound


def verdicts(bound: ScoreBound, claims: list[str], tokens: int = 10_000) -> list[Verdict]:
    rows = [Row(row=n, claim=claim) for n, claim in enumerate(claims)]
    encoded = bound.encode(rows)
    found = [v for part in infer_all(bound, encoded, budget=Budget(tokens), should_stop=lambda: False) for v in part]
    return sorted(found, key=lambda verdict: verdict.row)


def by_definition(folder: Path, template: Template, claim: str, *, adapter: Path | None = None) -> list[float]:
    """Score as lm-evaluation-harness does, with nothing of the engine's own code; an adapter stays beside the model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fsctx.agent.engines.hf.text import control_tokens
    from fsctx.templates.render import Renderer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if adapter is not None:
        from peft import PeftModel

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(model, adapter)
    prompt = Renderer(template, markers=control_tokens(tokenizer)).prompt(claim, {})
    text = prompt.text or tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in prompt.messages], tokenize=False, add_generation_prompt=True
    )
    is_raw = prompt.text is not None
    scores = []
    for label in template.labels:
        whole = tokenizer.encode(text + label.words, add_special_tokens=is_raw)
        n_context = len(tokenizer.encode(text.rstrip(), add_special_tokens=is_raw))
        with torch.inference_mode():
            steps = model(torch.tensor([whole])).logits[0].float().log_softmax(-1)
        scores.append(sum(float(steps[at - 1, whole[at]]) for at in range(n_context, len(whole))))
    return scores


@pytest.mark.parametrize("template", ["fever", "fever-raw", "true-false"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "mamba"])
def test_scores_are_those_of_the_definition(tmp_path: Path, kind: str, template: str) -> None:
    folder = make_model(tmp_path / "model", kind)
    chosen = load_template(template)
    for claim, verdict in zip(CLAIMS, verdicts(bind(folder, chosen), CLAIMS), strict=True):
        assert verdict.scores == pytest.approx(by_definition(folder, chosen, claim), abs=1e-3)
        assert verdict.verdict == chosen.label_names[verdict.scores.index(max(verdict.scores))]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_common_architectures_are_scored_in_one_pass(tmp_path: Path, kind: str) -> None:
    bound = bind(make_model(tmp_path, kind), load_template("fever-raw"))
    assert bound.tree is not None
    assert len(bound.tree.prefix) > 20
    assert bound.tree.is_shared == (kind != "gemma2")  # whose attention is none that can be replaced


@pytest.mark.parametrize("kind", ["mamba", "mistral"])
def test_an_architecture_that_the_tree_does_not_suit_falls_back_and_says_why(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    bound = bind(make_model(tmp_path, kind), load_template("fever-raw"))
    assert bound.tree is None
    assert "one sequence at a time" in caplog.text


def test_only_layers_that_compute_in_float32_are_held_to_its_precision(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    loaded = read_model(make_model(tmp_path), device=cpu, dtype=torch.float32)
    resident = make_resident(loaded, device=cpu, dtype=torch.float32)
    assert resident.tolerance == 1e-3
    loaded.model.is_quantized = True  # as transformers marks them
    assert resident.tolerance == 0.25


def test_scores_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path), load_template("fever"))
    chance = random.Random(7)
    words = " ".join(CLAIMS).split()
    claims = [" ".join(chance.choices(words, k=chance.randint(1, 60))) for _ in range(40)]
    alone = verdicts(bound, claims, tokens=1)
    for _ in range(4):
        order = chance.sample(range(40), 40)
        found = verdicts(bound, [claims[n] for n in order], tokens=chance.choice([100, 400, 4000]))
        for n, verdict in zip(order, found, strict=True):
            assert verdict.scores == pytest.approx(alone[n].scores, abs=1e-3)


def test_a_row_without_the_constant_prefix_is_scored_all_the_same(tmp_path: Path) -> None:
    template = parse_template('text = "{{ claim }} is"\n[labels]\nA = " true"\nB = " false"\n', where="t")
    folder = make_model(tmp_path)
    found = verdicts(bind(folder, template), CLAIMS)
    for claim, verdict in zip(CLAIMS, found, strict=True):
        assert verdict.scores == pytest.approx(by_definition(folder, template, claim), abs=1e-3)


def test_labels_whose_tokens_depend_on_the_end_of_the_claim_are_scored_by_the_definition(tmp_path: Path) -> None:
    template = parse_template('text = "Is it so? {{ claim }}"\n[labels]\nA = "true"\nB = "false"\n', where="t")
    folder = make_model(tmp_path)
    claims = [*CLAIMS, "is ", "un", "it is (", "not"]
    for claim, verdict in zip(claims, verdicts(bind(folder, template), claims), strict=True):
        assert verdict.scores == pytest.approx(by_definition(folder, template, claim), abs=1e-3)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_a_row_longer_than_a_sliding_window_is_scored_by_the_definition(tmp_path: Path, kind: str) -> None:
    folder, template = make_model(tmp_path, kind), load_template("fever-raw")
    bound = bind(folder, template)
    claims = ["short", "The Danube flows through Vienna. " * 12]
    short, long = verdicts(bound, claims)
    assert bound.tree is not None
    assert long.input_tokens > 256
    assert long.scores == pytest.approx(by_definition(folder, template, claims[1]), abs=1e-3)
    assert short.scores == pytest.approx(by_definition(folder, template, claims[0]), abs=1e-3)


def test_a_template_with_columns_is_scored_in_one_pass(tmp_path: Path) -> None:
    source = 'text = "{{ by }} said: {{ claim }} That is"\n[labels]\nA = " true"\nB = " false"\n'
    bound = bind(make_model(tmp_path), parse_template(source, where="t"))
    rows = [Row(row=0, claim="x", columns={"by": "somebody"}), Row(row=1, claim="x", columns={})]
    good, bad = bound.encode(rows)
    assert good.refused is None
    assert bad.refused is not None
    assert bad.refused.status == Status.ERROR
    assert [v.status for v in bound.infer([good])] == [Status.OK]


def test_a_row_longer_than_the_window_is_refused_and_never_cut(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path), load_template("fever-raw"))
    (verdict,) = verdicts(bound, ["word " * 600])
    assert verdict.status == Status.TOO_LONG
    assert "512" in str(verdict.error)
    assert verdict.input_tokens > 512


def test_input_tokens_are_all_of_the_prompt(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path), load_template("fever-raw"))
    assert bound.tree is not None
    (verdict,) = verdicts(bound, ["!"])
    assert verdict.input_tokens > len(bound.tree.prefix)
    assert verdict.output_tokens == 0


def test_scores_that_are_not_numbers_become_an_error_of_the_row(tmp_path: Path) -> None:
    model = load(make_model(tmp_path))
    bound = model.bind(BoundTask(template=load_template("fever"), method="score"))
    with torch.no_grad():
        model._resident.model.lm_head.weight[5] = float("nan")
    (verdict,) = verdicts(bound, ["x"])
    assert (verdict.row, verdict.status, verdict.verdict) == (0, Status.ERROR, None)
    assert "not finite" in str(verdict.error)
    encoded = bound.encode([Row(row=n, claim="x") for n in range(EVIDENCE)])
    with pytest.raises(Unfit, match="another node"):
        list(infer_all(bound, encoded, budget=Budget(10**6), should_stop=lambda: False, health=Health()))


def test_a_row_whose_scores_are_not_numbers_costs_no_other(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path), load_template("fever"))
    good, bad = bound.encode([Row(row=0, claim="x"), Row(row=1, claim="🙂")])
    token = next(iter(set(bad.payload.context) - set(good.payload.context)))
    with torch.no_grad():
        bound.tree.resident.model.get_input_embeddings().weight[token] = float("nan")  # type: ignore[union-attr]
    assert [v.status for v in bound.infer([good, bad])] == [Status.OK, Status.ERROR]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_has_a_float32_head(tmp_path: Path, dtype: str) -> None:
    model = load(make_model(tmp_path), dtype)
    bound = model.bind(BoundTask(template=load_template("fever"), method="score"))
    (verdict,) = bound.infer(bound.encode([Row(row=0, claim="x")]))
    assert model.dtype == dtype
    assert model._resident.model.get_output_embeddings()(torch.ones(1, 32, dtype=getattr(torch, dtype))).dtype == (
        torch.float32
    )
    assert verdict.status == Status.OK


def test_a_system_message_that_the_chat_template_refuses_is_joined_to_the_first_user_message(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path, chat=CHAT_WITHOUT_SYSTEM), load_template("fever"))
    assert verdicts(bound, ["x"])[0].status == Status.OK


@pytest.mark.parametrize(("first", "second"), [("true", "true so"), ("true", "true"), ("", "true")])
def test_labels_that_tokens_cannot_tell_apart_are_refused_at_bind(tmp_path: Path, first: str, second: str) -> None:
    labels = (Label(name="A", words=first), Label(name="B", words=second))
    with pytest.raises(Misconfigured, match="label"):
        bind(make_model(tmp_path), Template(name="t", text="{{ claim }} is", labels=labels))


def test_a_token_that_the_model_does_not_have_is_refused_at_bind(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = make_model(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["SUPPORTED"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(Misconfigured, match="'SUPPORTED'"):
        bind(folder, load_template("fever"))


def test_a_chat_is_refused_where_the_model_has_no_chat_template(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="fever-raw"):
        bind(make_model(tmp_path, chat=None), load_template("fever"))


def test_a_template_longer_than_the_window_is_refused_at_bind(tmp_path: Path) -> None:
    source = 'text = "' + "word " * 600 + '{{ claim }}"\n[labels]\nA = " true"\nB = " false"\n'
    with pytest.raises(Misconfigured, match="window"):
        bind(make_model(tmp_path), parse_template(source, where="t"))
