"""What did not fit once is not tried again by the next agent of the node."""

from pathlib import Path

import pytest

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.engines.base import Bound, BoundTask, Model, Row
from fsctx.agent.engines.fake import FakeEngine, parse_options
from fsctx.agent.remembering import remembering
from fsctx.protocol.manifest import Context
from fsctx.templates.load import load_template

CONTEXT = Context(digest="d", kind="fake", name="fake", origin="/", files=(), chunk_bytes=1)
ROWS = [Row(row=n, claim=f"claim {n}") for n in range(20)]


def load(root: Path, files: str = "model") -> Model:
    engine = FakeEngine(parse_options("oom_rows=3,batch_tokens=1000"))
    return remembering(lambda _: engine, root)(CONTEXT).load(Path(files))


def bind(model: Model) -> Bound:
    return model.bind(BoundTask(template=load_template("fever"), method="score"))


def run(model: Model) -> int:
    bound, budget = bind(model), Budget(model.batch_tokens)
    parts = list(infer_all(bound, bound.encode(ROWS), budget=budget, should_stop=lambda: False))
    assert sum(map(len, parts)) == len(ROWS)
    return budget.tokens


def test_the_next_load_begins_with_batches_that_fitted(tmp_path: Path) -> None:
    first = load(tmp_path)
    assert first.batch_tokens == 1000
    fitted = run(first)
    second = load(tmp_path)
    assert second.batch_tokens == fitted < 1000
    assert run(second) == fitted


def test_another_model_is_none_the_wiser(tmp_path: Path) -> None:
    run(load(tmp_path))
    assert load(tmp_path, "other").batch_tokens == 1000


@pytest.mark.parametrize("content", ["", "many", "-5"])
def test_a_note_that_is_none_does_no_harm(tmp_path: Path, content: str) -> None:
    run(load(tmp_path))
    (note,) = (tmp_path / "batches").iterdir()
    note.write_text(content)
    assert load(tmp_path).batch_tokens in (1, 1000)


def test_a_disk_that_refuses_costs_the_memory_alone(tmp_path: Path) -> None:
    (tmp_path / "batches").write_text("in the way")
    run(load(tmp_path))
    assert load(tmp_path).batch_tokens == 1000
