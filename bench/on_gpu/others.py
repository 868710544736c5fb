"""vLLM, where it is installed, and models that are spread over several cards."""

from dataclasses import replace

from fsctx.agent.engines.base import BoundTask, Split
from fsctx.agent.engines.choose import make_engine
from fsctx.agent.engines.vllm.installed import find_vllm
from fsctx.errors import Misconfigured
from on_gpu.bench import Bench
from on_gpu.clock import Skipped

_START_S = 75
"""vLLM's start is given up after so long."""


def vllm(bench: Bench) -> None:
    """Score and choose with vLLM, in its own process."""
    if find_vllm() is None:
        raise Skipped("vLLM is not installed here: pip install 'fsctx[vllm]' in an environment of its own")
    start_s = bench.clock.take(_START_S)
    held = replace(bench.template, generation=replace(bench.template.generation, choice=True))
    try:
        model = make_engine(f"vllm:start_s={start_s:.0f}", device=bench.spec, dtype=bench.dtype).load(bench.folder)
    except Misconfigured as error:
        raise Skipped(str(error)) from None
    try:
        for way, template, method in (("score", bench.template, "score"), ("choice", held, "generate")):
            bound = model.bind(BoundTask(template=template, method=method))
            timed = bench.engine(bound, bench.encoded(bound), model.batch_tokens)
            bench.line("vllm", way, bench.dtype, model.batch_tokens, timed)
    finally:
        model.close()


def splits(bench: Bench) -> None:
    """Score the large shape on one card, and on several: each layer shared, one stage behind the other, both."""
    n_cards = bench.found.card.get("n_cards", 2)  # processes stand for cards on a CPU
    if n_cards < 2:
        raise Skipped("there is one card: nothing to split a model over")
    folder = bench.large_folder()
    for split in (Split(), *(split for split in bench.sizes.splits if split.n_ranks <= n_cards)):
        bench.clock.take(1.0)
        with bench.loaded(bench.dtype, folder=folder, split=split) as model:
            bound = model.bind(BoundTask(template=bench.template, method="score"))
            timed = bench.engine(bound, bench.encoded(bound), model.batch_tokens)
            bench.line("splits", f"tp {split.tp} pp {split.pp}", bench.dtype, model.batch_tokens, timed)
