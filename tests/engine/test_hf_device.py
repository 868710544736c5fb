"""GPUs where there are none: asked for, and computed for in ways that are quick on one."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fsctx.agent.device import preflight
from fsctx.errors import EngineError, Unfit

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import make_model  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fsctx.agent.engines.base import BoundTask, Row  # noqa: E402
from fsctx.agent.engines.hf.choice import Choices, Held  # noqa: E402
from fsctx.agent.engines.hf.engine import HfEngine  # noqa: E402
from fsctx.agent.engines.hf.errors import guarded  # noqa: E402
from fsctx.agent.engines.hf.resident import float32_logits  # noqa: E402
from fsctx.agent.engines.hf.score import ScoreBound  # noqa: E402
from fsctx.agent.engines.hf.tree import Tree  # noqa: E402
from fsctx.agent.engines.hf.write import Watch  # noqa: E402
from fsctx.templates.load import load_template  # noqa: E402


class Counting(TorchDispatchMode):
    """Counts the operations that a device would be told to do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def test_a_gpu_that_is_not_there_is_unfit() -> None:
    with pytest.raises(Unfit, match="cuda:99"):
        preflight("cuda:99")


def test_an_error_of_a_torch_that_has_no_type_for_lost_devices_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "AcceleratorError", raising=False)

    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(EngineError, match="illegal memory access"):
        guarded(fail)


def test_holding_many_rows_to_a_choice_takes_no_more_operations_than_one_row() -> None:
    choices = Choices([(1, 2), (1, 3), (4,)])
    counts = []
    for n_rows in (1, 50):
        written = torch.tensor([[9, 1], [9, 7]]).repeat(n_rows, 1)
        with Counting() as counting:
            held = Held(choices, 1)(written, torch.zeros(len(written), 6))
        counts.append(counting.seen)
        assert [row.isfinite().nonzero().flatten().tolist() for row in held[:2]] == [[2, 3], [0]]
        assert torch.equal(held, held[:2].repeat(n_rows, 1))
    assert counts[0] == counts[1]


def test_watching_for_bad_logits_reads_nothing_back_while_the_model_writes() -> None:
    logits = torch.zeros(2, 5, device="meta")  # from which nothing can be read
    assert Watch(2, logits.device)(logits[:, :0], logits) is logits


def test_bad_logits_at_any_step_are_remembered() -> None:
    good, bad = torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.0, torch.nan, 0.0]])
    watch = Watch(2, good.device)
    for logits in (good, bad, good):
        watch(torch.zeros(2, 0), logits)
    assert watch.is_bad.tolist() == [False, True]


def test_the_rows_of_a_mask_begin_where_attention_on_gpus_takes_them_without_a_copy(tmp_path: Path) -> None:
    model = HfEngine(device="cpu").load(make_model(tmp_path))
    bound = model.bind(BoundTask(template=load_template("fever"), method="score"))
    assert isinstance(bound, ScoreBound)
    assert bound.tree is not None
    rows = bound.encode([Row(row=n, claim="Vienna " * n) for n in range(1, 9)])
    pairs = [[row, rows[0]] for row in rows]
    expected = [bound.infer(pair)[0].scores for pair in pairs]
    with torch.inference_mode():
        bound.tree = Tree(bound.tree.resident, bound.tree.prefix)
    masks: list[torch.Tensor] = []
    see = bound.tree.resident.model.register_forward_pre_hook
    with see(lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True):
        found = [bound.infer(pair)[0].scores for pair in pairs]
    assert torch.allclose(torch.tensor(found), torch.tensor(expected), atol=1e-3)
    assert {mask.shape[-1] % 8 for mask in masks} > {0}
    assert not any(stride % 8 for mask in masks for stride in mask.stride()[:-1])


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_head_of_many_words_is_computed_in_pieces_that_make_the_whole(*, has_bias: bool) -> None:
    hidden, weight = torch.randn(2, 3, 4).bfloat16(), torch.randn(40_000, 4).bfloat16()
    bias = torch.randn(40_000).bfloat16() if has_bias else None
    expected = hidden.float() @ weight.float().T + (0 if bias is None else bias.float())
    assert torch.allclose(float32_logits(hidden, weight, bias), expected, atol=1e-5)
