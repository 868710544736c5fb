"""vLLM itself, resident in the process that computes: the only module that imports it."""

import math
import time
from collections.abc import Sequence
from typing import Any

import psutil

from fsctx.agent.engines.hf.errors import first_line
from fsctx.agent.engines.vllm.messages import Answer, Follow, Ids, Job, Loaded, Question, Read, Write
from fsctx.agent.engines.vllm.room import kv_bytes, memory_share
from fsctx.errors import Misconfigured, Unfit

_BATCH_S = 2.0
"""A batch takes about so long: an agent that is told to leave finishes it first."""
_BATCH_TOKENS = {"cpu": (256, 8_192), "cuda": (8_192, 262_144)}
_TRIAL = (16, 64)
"""Prompts and tokens of each, by which the speed is found."""
_CPU_BLOCK = 32
"""The smallest that vLLM's attention on a CPU takes; what two prompts share beyond whole blocks is computed twice."""


class Resident:
    """A model in vLLM."""

    def __init__(self, job: Job) -> None:
        self._llm = _start(job)
        if job.split.n_ranks > 1:
            self._llm.collective_rpc("die_with_parent")
        self.loaded = self._describe(job)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer to each question, in order."""
        outputs = self._generate(questions, [_parameters(question) for question in questions])
        lost = [n for n, question in enumerate(questions) if _is_lost(question, outputs[n])]
        if lost:
            again = [questions[n] for n in lost]
            found = self._generate(again, [_parameters(question, is_cached=False) for question in again])
            for n, output in zip(lost, found, strict=True):
                outputs[n] = output
        return [_answer(question, output) for question, output in zip(questions, outputs, strict=True)]

    def _generate(self, questions: Sequence[Question], parameters: list[Any]) -> list[Any]:
        prompts = [{"prompt_token_ids": list(_prompt(question))} for question in questions]
        outputs: list[Any] = self._llm.generate(prompts, parameters, use_tqdm=False)
        return outputs

    def _describe(self, job: Job) -> Loaded:
        import torch

        config = self._llm.llm_engine.vllm_config
        name = "cpu" if job.kind == "cpu" else torch.cuda.get_device_name(0)
        vocabulary = int(config.model_config.get_vocab_size())
        return Loaded(
            device=name if job.split.n_ranks == 1 else f"{job.split.n_ranks} × {name}",
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            batch_tokens=self._find_batch_tokens(job, vocabulary),
            window=int(config.model_config.max_model_len),
            vocabulary=vocabulary,
            block_tokens=int(config.cache_config.block_size),
        )

    def _find_batch_tokens(self, job: Job, vocabulary: int) -> int:
        """Return how many tokens take some two seconds; the first trial, which also warms up, does not count."""
        least, most = _BATCH_TOKENS[job.kind]
        seconds = 0.0
        for trial in range(2):
            prompts = _trial_prompts(trial, vocabulary, self._llm.llm_engine.vllm_config.model_config.max_model_len)
            began_s = time.perf_counter()
            self.answer([Read(ids=ids, tokens=ids[:1]) for ids in prompts])
            seconds = time.perf_counter() - began_s
        return max(least, min(most, int(_BATCH_S * sum(map(len, prompts)) / seconds)))


def _start(job: Job) -> Any:
    from pydantic import ValidationError
    from vllm import LLM
    from vllm.platforms import current_platform

    is_for_cpu = current_platform.is_cpu()
    if is_for_cpu != (job.kind == "cpu"):
        built, other = ("CPUs", "--device cpu") if is_for_cpu else ("GPUs", "--device cuda")
        raise Misconfigured(f"the vllm that is installed is built for {built}: use {other}, or --engine hf")
    if is_for_cpu and job.split.pp > 1:  # its stages fail on their first batch
        raise Misconfigured("vLLM 0.32 can't put the stages of a pipeline on CPUs: use --tp, or --engine hf")
    try:
        return LLM(
            model=str(job.files),
            dtype=job.dtype or _dtype(job),
            load_format="safetensors",
            trust_remote_code=False,
            enable_prefix_caching=True,
            enforce_eager=not job.options.compile,
            tensor_parallel_size=job.split.tp,
            pipeline_parallel_size=job.split.pp,
            max_model_len=-1,  # the model's window, or what the memory allows
            hf_overrides={"head_dtype": "float32"},  # in half precision different words tie exactly
            worker_extension_cls="fsctx.agent.engines.vllm.worker.DiesWithParent",
            use_tqdm_on_load=False,
            **_room(job),
        )
    except ValidationError as error:  # of model and settings, before it looks at the device
        raise Misconfigured(f"{job.files} cannot be loaded by vLLM ({error.errors()[0]['msg']})") from None
    except (MemoryError, ValueError, RuntimeError) as error:
        raise Unfit(f"vLLM did not start ({type(error).__name__}: {first_line(error)}): try another node") from None


def _room(job: Job) -> dict[str, Any]:
    """Return what vLLM is told about memory."""
    asked = int(job.options.kv_gb * 1e9)
    if job.kind == "cpu":
        available = psutil.virtual_memory().available
        return {"block_size": _CPU_BLOCK, "kv_cache_memory_bytes": asked or kv_bytes(available)}
    import torch

    seen = [torch.cuda.mem_get_info(number) for number in range(job.split.n_ranks)]
    share = min(memory_share(free_bytes=free, total_bytes=total) for free, total in seen)
    return {"gpu_memory_utilization": share} | ({"kv_cache_memory_bytes": asked} if asked else {})


def _dtype(job: Job) -> str:
    """Return the precision that hf would take."""
    import torch

    from fsctx.agent.engines.hf.device import default_dtype

    return str(default_dtype(torch.device(job.kind))).removeprefix("torch.")


def _prompt(question: Question) -> Ids:
    match question:
        case Follow(context=context, tokens=tokens):
            return (*context, *tokens)
        case Read(ids=ids) | Write(ids=ids):
            return ids


def _parameters(question: Question, *, is_cached: bool = True) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    match question:
        case Read(tokens=tokens):
            return SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=list(tokens), detokenize=False)
        case Follow():
            return SamplingParams(
                max_tokens=1,
                temperature=0,
                prompt_logprobs=0,
                skip_reading_prefix_cache=not is_cached,  # else it would recompute the whole prompt
                detokenize=False,
            )
        case Write(choices=choices):
            return SamplingParams(
                max_tokens=question.max_new_tokens,
                temperature=question.temperature,
                seed=question.seed,
                stop=list(question.stop),
                logprobs=0,  # of what it writes: logits that are no numbers are seen by nothing else
                structured_outputs=StructuredOutputsParams(choice=list(choices)) if choices else None,
            )


def _is_lost(question: Question, output: Any) -> bool:
    """Whether log-probabilities were not computed, as they belong to tokens that were found in the cache."""
    return isinstance(question, Follow) and (output.num_cached_tokens or 0) >= len(question.context)


def _answer(question: Question, output: Any) -> Answer:
    written = output.outputs[0]
    match question:
        case Read(tokens=tokens):
            return tuple(written.logprobs[0][token].logprob for token in tokens)
        case Follow(tokens=tokens):
            last = output.prompt_logprobs[-len(tokens) :]  # of those in the cache there are none
            return tuple(found[token].logprob for found, token in zip(last, tokens, strict=True))
        case Write():
            steps = zip(written.token_ids, written.logprobs, strict=True)
            is_good = all(math.isfinite(step[token].logprob) for token, step in steps)
            return tuple(written.token_ids) if is_good else ()


def _trial_prompts(seed: int, vocabulary: int, window: int) -> list[Ids]:
    """Return prompts of which no two share a block."""
    n_prompts, n_tokens = _TRIAL
    first = range(seed * n_prompts, (seed + 1) * n_prompts)
    return [tuple((1 + n + 7 * k) % vocabulary for k in range(min(n_tokens, window - 1))) for n in first]
