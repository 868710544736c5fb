"""What prompts have in common, as vLLM's cache sees it. Pure."""

from collections.abc import Sequence

from fsctx.agent.engines.vllm.messages import Ids


def shared_tokens(prompts: Sequence[Ids], block_tokens: int) -> int:
    """Return how many tokens at the start of all prompts are found in the cache: whole blocks."""
    if not prompts:
        return 0
    first, last = min(prompts), max(prompts)  # in lexical order: what these two share, all share
    n_least = min(len(first), len(last))
    n_same = next((n for n in range(n_least) if first[n] != last[n]), n_least)
    return n_same // block_tokens * block_tokens
