"""The parts that compute in this process, on one card."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from rivals.ways import Bare

from fsctx.agent.engines.base import Bound, BoundTask
from fsctx.agent.engines.hf.score import ScoreBound
from fsctx.agent.engines.hf.tree import Tree
from fsctx.errors import OutOfMemory
from fsctx.protocol.verdicts import Verdict
from on_gpu import card, shapes
from on_gpu.bench import Bench, Timed

PRECISIONS = ("float32", "bfloat16", "float16")


def rates(bench: Bench) -> None:
    """Measure what the card multiplies at, and what the float32 head costs."""
    config = shapes.config_of("tiny" if bench.sizes.large == "tiny" else "135M")
    for name in PRECISIONS:
        dtype = getattr(torch, name)
        square = card.square_rate(dtype, bench.device)
        layer = card.matrix_rate(config.hidden_size, config.intermediate_size, dtype, bench.device)
        bench.found.note("rates", **{name: {"tflops": round(square / 1e12, 2), "layer_tflops": round(layer / 1e12, 2)}})
    dtype = getattr(torch, bench.dtype)
    bench.found.note("rates", head=card.heads(config.hidden_size, config.vocab_size, dtype, bench.device))


def scoring(bench: Bench) -> None:
    """Score all labels in each precision with batches of several sizes, and with the other form of attention."""
    expected: Mapping[int, Verdict] = {}
    for dtype in PRECISIONS:
        expected = _score_in(bench, dtype, expected) or expected


def transformers(bench: Bench) -> None:
    """Generate as transformers' manual shows it: the paper's listing, and padded batches."""
    claims = [row.claim for row in bench.rows(bench.sizes.rows)]
    n = bench.sizes.padded_rows
    for dtype in dict.fromkeys(("float32", bench.dtype)):
        bare = Bare(bench.folder, bench.template, device=bench.spec, dtype=getattr(torch, dtype))
        alone = bench.timed(bare.write, [[claim] for claim in claims])
        bench.line("transformers", "listing", dtype, 1, alone)
        padded = bench.timed(bare.write, [claims[at : at + n] for at in range(0, len(claims), n)])
        bench.line("transformers", "padded", dtype, n, padded)


def generating(bench: Bench) -> None:
    """Write with this engine, freely and held to the labels' words."""
    held = replace(bench.template, generation=replace(bench.template.generation, choice=True))
    with bench.loaded(bench.dtype) as model:
        for way, template in {"generate": bench.template, "choice": held}.items():
            bound = model.bind(BoundTask(template=template, method="generate"))
            rows = bench.encoded(bound)
            for tokens in (model.batch_tokens, *bench.sizes.batches[:1]):
                try:
                    bench.line("generating", way, bench.dtype, tokens, bench.engine(bound, rows, tokens))
                except OutOfMemory as error:
                    bench.found.note("generating", **{f"{way}_{tokens}": str(error)})


def larger(bench: Bench) -> None:
    """Score with larger shapes, whose random weights are made on the card."""
    for shape in bench.sizes.larger:
        bench.clock.take(1.0)
        _score_random(bench, shape)


def _score_in(bench: Bench, dtype: str, expected: Mapping[int, Verdict]) -> Mapping[int, Verdict]:
    """Score in one precision; return the verdicts."""
    with bench.loaded(dtype) as model:
        bound = model.bind(BoundTask(template=bench.template, method="score"))
        found = _score(bench, bound, dtype, [model.batch_tokens, *bench.sizes.batches], expected)
        if dtype == bench.dtype and isinstance(bound, ScoreBound) and bound.tree is not None:
            bound.tree = _other_form(bound.tree)
            _score(bench, bound, dtype, [model.batch_tokens], expected)
        return found


def _score_random(bench: Bench, shape: str) -> None:
    """Score with a shape that has no files."""
    dtype = getattr(torch, bench.dtype)
    model = shapes.load_random(shape, dtype=dtype, device=bench.device, like=bench.folder)
    try:
        bound = model.bind(BoundTask(template=bench.template, method="score"))
        sizes = [model.batch_tokens, *bench.sizes.batches[-1:]]
        _score(bench, bound, bench.dtype, sizes, {}, part=f"larger {shape}")
    finally:
        model.close()


def _score(
    bench: Bench,
    bound: Bound,
    dtype: str,
    batch_tokens: Sequence[int],
    expected: Mapping[int, Verdict],
    part: str = "scoring",
) -> Mapping[int, Verdict]:
    """Add a line for each size of batches; return the verdicts of the first."""
    rows = bench.encoded(bound)
    most = bench.most_per_s(bound, rows)
    first: Mapping[int, Verdict] = {}
    for tokens in dict.fromkeys(batch_tokens):
        try:
            timed = bench.engine(bound, rows, tokens)
        except OutOfMemory as error:
            bench.found.note(part, **{f"{dtype}_{tokens}": str(error)})
            continue
        fraction = None if most is None else round(timed.rows_per_s / most, 4)
        compared = _compared(timed, expected or first)
        bench.line(part, _form(bound), dtype, tokens, timed, of_ceiling=fraction, **compared)
        first = first or timed.verdicts
    return first


def _form(bound: Bound) -> str:
    """Say how labels are scored."""
    if not isinstance(bound, ScoreBound) or bound.tree is None:
        return "score, one by one"
    return "score, shared prefix" if bound.tree.is_shared else "score, masked prefix"


@torch.inference_mode()
def _other_form(tree: Tree) -> Tree:
    return Tree(tree.resident, tree.prefix, is_shared=not tree.is_shared)


def _compared(timed: Timed, expected: Mapping[int, Verdict]) -> dict[str, float | None]:
    """Return how the verdicts agree with those expected of the same rows, and how far the scores are apart at most."""
    both = [(timed.verdicts[row], expected[row]) for row in timed.verdicts.keys() & expected.keys()]
    if not both:
        return {}
    same = sum(one.verdict == other.verdict for one, other in both) / len(both)
    apart = (abs(a - b) for one, other in both for a, b in zip(one.scores or (), other.scores or (), strict=False))
    return {"as_float32": round(same, 4), "nat": round(max(apart, default=0.0), 5)}
