"""Generation by the hf engine, on a tiny random model."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import make_model  # noqa: E402

from fsctx.agent.batching import EVIDENCE, Budget, Health, infer_all  # noqa: E402
from fsctx.agent.engines.base import Bound, BoundTask, Row  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine  # noqa: E402
from fsctx.agent.engines.hf.generate import GenerateBound  # noqa: E402
from fsctx.errors import Misconfigured, Unfit  # noqa: E402
from fsctx.protocol.verdicts import Status, Verdict  # noqa: E402
from fsctx.templates.load import load_template  # noqa: E402
from fsctx.templates.model import Generation, Template  # noqa: E402

CLAIMS = ["Vienna", "水在一百度沸腾。", "the claim is known " * 9, "!", "NOT", "The Danube flows through Vienna."]


def bind(folder: Path, **generation: object) -> Bound:
    template = replace(load_template("fever-raw"), generation=Generation(**generation))  # type: ignore[arg-type]
    return HfEngine(device="cpu").load(folder).bind(BoundTask(template=template, method="generate"))


def run(bound: Bound, claims: list[str], tokens: int) -> list[Verdict]:
    encoded = bound.encode([Row(row=n, claim=claim) for n, claim in enumerate(claims)])
    found = [v for part in infer_all(bound, encoded, budget=Budget(tokens), should_stop=lambda: False) for v in part]
    return sorted(found, key=lambda verdict: verdict.row)


def by_definition(folder: Path, template: Template, claim: str, n_new: int) -> str:
    """Write greedily, token by token, with no cache and no padding."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fsctx.templates.render import render

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tokenizer.encode(str(render(template, claim, {}).text))
    n_prompt = len(ids)
    for _ in range(n_new):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return str(tokenizer.decode(ids[n_prompt:], skip_special_tokens=True))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral", "mamba"])
def test_text_is_what_the_model_writes_alone(tmp_path: Path, kind: str) -> None:
    folder = make_model(tmp_path, kind)
    found = run(bind(folder, max_new_tokens=8), CLAIMS, 100_000)
    for claim, verdict in zip(CLAIMS, found, strict=True):
        assert verdict.text == by_definition(folder, load_template("fever-raw"), claim, 8)
        assert 0 < verdict.output_tokens <= 8


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_the_constant_prefix_is_computed_once(tmp_path: Path, kind: str) -> None:
    bound = bind(make_model(tmp_path, kind), max_new_tokens=8)
    assert isinstance(bound, GenerateBound)
    assert len(bound.prefix) > 20


def test_a_model_whose_cache_cannot_be_continued_writes_from_the_start(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path, "mamba"), max_new_tokens=8)
    assert isinstance(bound, GenerateBound)
    assert bound.prefix == ()


def test_what_is_drawn_depends_on_the_claim_and_not_on_batch_or_row(tmp_path: Path) -> None:
    bound, chance = bind(make_model(tmp_path), max_new_tokens=6, temperature=1.5), random.Random(3)
    claims = [*CLAIMS, *CLAIMS]
    alone = run(bound, claims, 1)
    order = chance.sample(range(len(claims)), len(claims))
    together = run(bound, [claims[n] for n in order], 100_000)
    assert [v.text for v in together] == [alone[n].text for n in order]
    assert [v.text for v in alone[:6]] == [v.text for v in alone[6:]]
    assert len({v.text for v in alone}) > 3


def test_a_temperature_draws_by_the_softmax() -> None:
    from fsctx.agent.engines.hf.write import Drawn

    logits = torch.tensor([[2.0, 0.0, 1.0]])
    n, temperature = 4000, 2.0
    chosen = Drawn(temperature, list(range(n)))(torch.empty(0), logits.expand(n, 3)).argmax(-1)
    seen = torch.bincount(chosen, minlength=3) / n
    assert seen.tolist() == pytest.approx((logits[0] / temperature).softmax(-1).tolist(), abs=0.03)


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    whole = run(bind(folder, max_new_tokens=8), CLAIMS, 100_000)
    stop = str(whole[0].text)[2:4]
    for before, after in zip(whole, run(bind(folder, max_new_tokens=8, stop=(stop,)), CLAIMS, 100_000), strict=True):
        assert after.text == str(before.text).partition(stop)[0]
        assert after.output_tokens <= before.output_tokens
    assert stop not in str(whole[0].text).partition(stop)[0]


def test_text_without_a_label_is_an_error_with_a_reason_and_kept(tmp_path: Path) -> None:
    (verdict,) = run(bind(make_model(tmp_path), max_new_tokens=3), ["Vienna"], 1000)
    assert (verdict.status, verdict.verdict) == (Status.ERROR, None)
    assert verdict.text
    assert verdict.error


def test_a_pattern_reads_the_verdict(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    (before,) = run(bind(folder, max_new_tokens=3), ["Vienna"], 1000)
    labels = (replace(load_template("fever-raw").labels[0], words=" " + str(before.text).strip()),)
    template = replace(load_template("fever-raw"), labels=labels, generation=Generation(max_new_tokens=3))
    bound = HfEngine(device="cpu").load(folder).bind(BoundTask(template=template, method="generate"))
    (verdict,) = run(bound, ["Vienna"], 1000)
    assert (verdict.verdict, verdict.status) == ("SUPPORTED", Status.OK)


def test_a_prompt_that_leaves_no_room_for_the_answer_is_too_long(tmp_path: Path) -> None:
    (verdict,) = run(bind(make_model(tmp_path), max_new_tokens=300), ["the " * 200], 1000)
    assert verdict.status == Status.TOO_LONG
    assert "300" in str(verdict.error)


def test_a_choice_lets_out_labels_only_and_the_likeliest_token_at_each_step(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fsctx.templates.render import render

    folder, template = make_model(tmp_path), load_template("fever-raw")
    bound = bind(folder, max_new_tokens=12, choice=True)
    together = run(bound, CLAIMS, 100_000)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    words = {label.words: label.name for label in template.labels}
    for claim, verdict in zip(CLAIMS, together, strict=True):
        prompt = tokenizer.encode(str(render(template, claim, {}).text))
        left = [tokenizer.encode(part, add_special_tokens=False) for part in words]
        written: list[int] = []
        while len(left) > 1 or written != left[0]:
            with torch.inference_mode():
                steps = model(torch.tensor([prompt + written])).logits[0, -1]
            written.append(max({ids[len(written)] for ids in left}, key=lambda token: float(steps[token])))
            left = [ids for ids in left if ids[: len(written)] == written]
        assert verdict.text == tokenizer.decode(written)
        assert verdict.verdict == words[verdict.text]
        assert verdict.output_tokens == len(written)
        assert verdict.status == Status.OK


def test_a_drawn_choice_is_a_label_too_and_depends_on_the_claim_alone(tmp_path: Path) -> None:
    bound = bind(make_model(tmp_path), max_new_tokens=12, choice=True, temperature=5.0)
    claims = [f"claim {n}" for n in range(30)]
    together, alone = run(bound, claims, 100_000), run(bound, claims, 1)
    assert together == alone
    assert {verdict.verdict for verdict in together} == set(load_template("fever-raw").label_names)


def test_a_choice_longer_than_what_may_be_written_is_refused_at_bind(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="max_new_tokens"):
        bind(make_model(tmp_path), max_new_tokens=1, choice=True)


def test_rows_whose_logits_are_no_numbers_are_errors_and_an_engine_that_gives_no_others_is_unfit(
    tmp_path: Path,
) -> None:
    model = HfEngine(device="cpu").load(make_model(tmp_path))
    bound = model.bind(BoundTask(template=load_template("fever-raw"), method="generate"))
    with torch.no_grad():
        model._resident.model.lm_head.weight[5] = float("nan")
    (verdict,) = run(bound, ["x"], 1000)
    assert (verdict.status, verdict.verdict, verdict.text) == (Status.ERROR, None, None)
    assert "not finite" in str(verdict.error)
    encoded = bound.encode([Row(row=n, claim="x") for n in range(EVIDENCE)])
    with pytest.raises(Unfit, match="another node"):
        list(infer_all(bound, encoded, budget=Budget(10**6), should_stop=lambda: False, health=Health()))


def test_chats_of_the_rows_own_are_answered_with_free_text_and_one_that_is_none_costs_its_row(tmp_path: Path) -> None:
    template = replace(load_template("messages"), generation=Generation(max_new_tokens=4))
    bound = HfEngine(device="cpu").load(make_model(tmp_path)).bind(BoundTask(template=template, method="generate"))
    chats = [[{"role": role, "content": "Is ice cold?"} for role in roles] for roles in (["user"], ["system", "user"])]
    rows = [Row(row=n, claim="Is ice cold?", columns={"messages": chat}) for n, chat in enumerate([*chats, "none"])]
    first, second, third = bound.encode(rows)
    assert first.n_tokens < second.n_tokens
    assert third.refused is not None
    assert "holds no chat" in (third.refused.error or "")
    for verdict in bound.infer([first, second]):
        assert (verdict.status, verdict.verdict, verdict.error) == ("ok", None, None)
        assert verdict.output_tokens > 0
