"""llama.cpp by llama-cpp-python: every label behind every prompt, from what the ones before left in the cache."""

import json
import os
import sys
import time

import numpy as np
from llama_cpp import Llama


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    n_threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count()
    llama = Llama(
        asked["gguf"], n_ctx=2048, n_threads=n_threads, n_threads_batch=n_threads, logits_all=True, verbose=False
    )

    def score(prompt: str, words: str) -> float:
        n_context = len(tokens_of(llama, prompt))
        ids = tokens_of(llama, prompt + words)
        kept = min(common(llama.input_ids[: llama.n_tokens].tolist(), ids), n_context - 1)
        llama.n_tokens = kept  # as its own `generate` does: what follows is forgotten at the next evaluation
        llama.eval(ids[kept:-1])
        logits = llama.scores[n_context - 1 : len(ids) - 1].astype(np.float64)
        highest = logits.max(axis=-1, keepdims=True)
        steps = logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
        return float(sum(step[token] for step, token in zip(steps, ids[n_context:], strict=True)))

    labels, verdicts = asked["labels"], {}
    for n, (claim, prompt) in enumerate(asked["prompts"].items()):
        if n == 1:  # the first one warmed up
            wall_s, cpu_s = time.perf_counter(), time.process_time()
        scores = {name: score(prompt, words) for name, words in labels.items()}
        verdicts[claim] = max(scores, key=scores.__getitem__)
    share = len(verdicts) / (len(verdicts) - 1)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(json.dumps({"wall_s": wall_s * share, "cpu_s": cpu_s * share, "verdicts": verdicts}))


def tokens_of(llama: Llama, text: str) -> list[int]:
    return llama.tokenize(text.encode(), add_bos=False, special=True)


def common(one: list[int], other: list[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    main()
