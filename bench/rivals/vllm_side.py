"""vLLM on a CPU: answers held to the labels' words, the prompts' common beginning from its cache."""

import json
import os
import sys
import time

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    model = LLM(
        model=asked["model"],
        dtype="bfloat16",
        enable_prefix_caching=True,
        max_model_len=2048,
        block_size=32,
        enforce_eager=True,
    )
    words = {word: name for name, word in asked["labels"].items()}
    choice = SamplingParams(
        temperature=0.0, max_tokens=16, structured_outputs=StructuredOutputsParams(choice=list(words))
    )
    prompts = list(asked["prompts"].values())
    model.generate(prompts[:1], choice, use_tqdm=False)  # warm
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    found = model.generate(prompts, choice, use_tqdm=False)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    verdicts = {claim: words.get(answer.outputs[0].text) for claim, answer in zip(asked["prompts"], found, strict=True)}
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "verdicts": verdicts}))


if __name__ == "__main__":
    main()
