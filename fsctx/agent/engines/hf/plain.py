"""Scores by the definition: each prompt with each label behind it, as a sequence of its own. Slow, for any model."""

from collections.abc import Sequence

import torch

from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.text import Ids, Pair


def score_plainly(resident: Resident, rows: Sequence[Pair]) -> torch.Tensor:
    """Return log-probabilities (B, labels).

    Sequences are padded at their ends, which nothing before can see: no mask is needed, whatever the architecture.
    """
    sequences = [(row.context, label) for row in rows for label in row.labels]
    scores = score_sequences(resident, sequences)
    return scores.view(len(rows), -1)


def score_sequences(resident: Resident, sequences: Sequence[tuple[Ids, Ids]]) -> torch.Tensor:
    """Return log P(label | context) (N) of pairs of context and label."""
    fed = [(*context, *label[:-1]) for context, label in sequences]
    length = max(map(len, fed))
    first = min(len(context) for context, _ in sequences) - 1
    ids = torch.tensor([(*tokens, *([0] * (length - len(tokens)))) for tokens in fed], device=resident.device)
    keep = torch.arange(first, length, device=resident.device)
    logits = resident.logits(ids, keep)  # (N, K, V)
    return torch.stack(
        [_sum_up(logits[n, len(context) - 1 - first :], label) for n, (context, label) in enumerate(sequences)]
    )


def _sum_up(logits: torch.Tensor, label: Ids) -> torch.Tensor:
    """Return the log-probability of a label from the logits (≥ L, V) that predict its tokens."""
    steps = logits[: len(label)].log_softmax(dim=-1)
    return steps.gather(1, torch.tensor([label], device=logits.device).T).sum()
