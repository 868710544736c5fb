"""lm-evaluation-harness: log-likelihoods of every label behind every prompt. Run in its own environment."""

import json
import sys
import time

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

BATCH_ROWS = 8


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    model = HFLM(pretrained=asked["model"], device="cpu", dtype="float32", batch_size=BATCH_ROWS, max_batch_size=None)
    words = list(asked["labels"].values())

    def score(prompts: list[str]) -> list[float]:
        pairs = [(prompt, word) for prompt in prompts for word in words]
        made = [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=n) for n, pair in enumerate(pairs)]
        return [found[0] for found in model.loglikelihood(made, disable_tqdm=True)]

    prompts = list(asked["prompts"].values())
    score(prompts[:1])  # warm
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    scores = score(prompts)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    verdicts = {}
    for n, claim in enumerate(asked["prompts"]):
        own = scores[n * len(words) : (n + 1) * len(words)]
        verdicts[claim] = list(asked["labels"])[own.index(max(own))]
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
