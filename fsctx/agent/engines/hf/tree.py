"""Scores of all labels of many prompts in one pass: the constant prefix is computed once, the rest is a tree.

A row's tokens on the device, behind the cached prefix (P tokens, shared by all rows without a copy):

    [padding | the claim's own tokens, and what all labels begin with | label 1 | label 2 | …]
              `trunk`, up to T tokens, right-aligned                    `branches`, S tokens in all

A branch attends to its trunk and to itself, at the positions that it would have alone. Of each label the last
token is not fed, since nothing comes after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from fsctx.agent.engines.hf.attention import use_shared_prefix
from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.text import Ids, Pair
from fsctx.errors import EngineError

_PLAIN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
"""Layers whose keys and values are all that they remember; a subclass may remember more."""

_ALIGNED = 8
"""A mask whose rows begin at a multiple of so many numbers is taken as it is by CUDA's attention with a mask, which
copies others in each layer (`preprocess_mask` in PyTorch's attention.cpp)."""


class PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values of the prefix, put before those of every row and never changed."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = self._prefix = keys, values  # each (1, heads, P, D)
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def expanded(self, n_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prefix' keys and values as those of so many rows, without a copy."""
        keys, values = self._prefix
        return keys.expand(n_rows, -1, -1, -1), values.expand(n_rows, -1, -1, -1)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values (B, heads, P + Q, D); keeps nothing."""
        keys, values = self.expanded(len(key_states))
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Where the labels' tokens stand behind a trunk, and where their log-probabilities are read."""

    common: Ids
    """What all labels begin with: part of the trunk."""
    fed: Ids
    """All branches' tokens but their last, one after the other (S)."""
    depth: Ids
    """How far behind the trunk each of them stands (S)."""
    of: Ids
    """Which label each of them belongs to (S)."""
    step_at: Ids
    """Index, among the positions whose logits are kept, where a token is predicted."""
    step_token: Ids
    step_label: Ids


def arrange(labels: Sequence[Ids]) -> Branches:
    """Lay the tokens of labels out. No label's tokens begin another's."""
    n_common = common_length(labels)
    common, rests = labels[0][:n_common], [ids[n_common:] for ids in labels]
    fed: list[int] = []
    depth: list[int] = []
    of: list[int] = []
    steps: list[tuple[int, int, int]] = []
    for label, rest in enumerate(rests):
        steps += [(at, token, label) for at, token in enumerate((*common, rest[0]))]
        steps += [(n_common + 1 + len(fed) + at, token, label) for at, token in enumerate(rest[1:])]
        fed += rest[:-1]
        depth += range(len(rest) - 1)
        of += [label] * (len(rest) - 1)
    at, token, step_label = zip(*steps, strict=True)
    return Branches(
        common=common,
        fed=tuple(fed),
        depth=tuple(depth),
        of=tuple(of),
        step_at=at,
        step_token=token,
        step_label=step_label,
    )


class Tree:
    """The scoring pass of one resident model behind one constant prefix."""

    def __init__(self, resident: Resident, prefix: Ids, *, is_shared: bool = False) -> None:
        self.prefix = prefix
        self.resident = resident
        self._cache = compute_prefix(resident, prefix) if prefix else None
        self.is_shared = is_shared and bool(prefix) and use_shared_prefix(resident.model)

    def takes(self, row: Pair) -> bool:
        """Tell whether a row begins with the prefix and is short enough to be attended to in full."""
        n_prefix, n_tokens = len(self.prefix), len(row.context) + max(map(len, row.labels))
        begins = len(row.context) > n_prefix and row.context[:n_prefix] == self.prefix
        return begins and n_tokens <= self.resident.local_window

    def cost(self, row: Pair) -> int:
        """Return how many tokens a row feeds to the device."""
        n_common = common_length(row.labels)
        behind = n_common + sum(len(label) - n_common - 1 for label in row.labels)
        return len(row.context) - len(self.prefix) + behind

    def score(self, rows: Sequence[Pair]) -> torch.Tensor:
        """Return log-probabilities (B, labels) of rows whose labels have the same tokens."""
        branches = arrange(rows[0].labels)
        trunks = [(*row.context[len(self.prefix) :], *branches.common) for row in rows]
        n_trunk = max(map(len, trunks))
        ids = [(*([0] * (n_trunk - len(trunk))), *trunk, *branches.fed) for trunk in trunks]
        pads = self._tensor([n_trunk - len(trunk) for trunk in trunks])  # (B)
        logits = self.resident.logits(
            self._tensor(ids),  # (B, T + S)
            self._tensor(range(n_trunk - 1 - len(branches.common), n_trunk + len(branches.fed))),  # (K)
            position_ids=self._positions(pads, n_trunk, branches),
            attention_mask=self._mask(pads, n_trunk, branches),
            **self._prefix(),
        )  # (B, K, V)
        return self._sum_up(logits, branches, len(rows[0].labels))

    def _prefix(self) -> dict[str, Any]:
        """Return the argument that hands the prefix' keys and values over."""
        if self._cache is None:
            return {}
        if self.is_shared:
            return {"shared_prefix": [layer.expanded(1) for layer in self._cache]}
        return {"cache": Cache(layers=list(self._cache))}

    def _sum_up(self, logits: torch.Tensor, branches: Branches, n_labels: int) -> torch.Tensor:
        at, token = self._tensor(branches.step_at), self._tensor(branches.step_token)
        steps = logits.log_softmax(dim=-1)[:, at, token]  # (B, steps)
        scores = torch.zeros(len(logits), n_labels, device=logits.device)
        return scores.index_add_(1, self._tensor(branches.step_label), steps)

    def _positions(self, pads: torch.Tensor, n_trunk: int, branches: Branches) -> torch.Tensor:
        steps = self._tensor([*range(n_trunk), *(n_trunk + depth for depth in branches.depth)])  # (T + S)
        return (steps - pads.unsqueeze(1)).clamp(min=0) + len(self.prefix)  # (B, T + S)

    def _mask(self, pads: torch.Tensor, n_trunk: int, branches: Branches) -> torch.Tensor:
        """Return the additive mask (B, 1, T + S, P + T + S), without P where the attention knows the prefix."""
        of = self._tensor([*([-1] * n_trunk), *branches.of])  # (Q), -1: trunk
        at = torch.arange(len(of), device=of.device)
        is_before = at.unsqueeze(1) >= at  # (Q, Q)
        is_related = (of == -1) | (of.unsqueeze(1) == of)
        is_padding = at < pads.unsqueeze(1)  # (B, Q)
        own = (is_before & is_related) & ~is_padding.unsqueeze(1)  # (B, Q, Q)
        own |= at.unsqueeze(1) == at  # padding attends to itself: a row of nothing would be NaN
        n_prefix, dtype = 0 if self.is_shared else len(self.prefix), self.resident.dtype
        n_keys = n_prefix + len(of)
        room = -(-n_keys // _ALIGNED) * _ALIGNED
        mask = torch.zeros(len(pads), 1, len(of), room, dtype=dtype, device=of.device)[..., :n_keys]
        mask[:, 0, :, n_prefix:].masked_fill_(~own, torch.finfo(dtype).min)
        return mask

    def _tensor(self, values: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.resident.device)


def compute_prefix(resident: Resident, prefix: Ids) -> list[PrefixLayer]:
    """Run the prefix once and return its keys and values.

    Raises:
        EngineError: this model does not keep plain keys and values of every token in every layer.
    """
    cache = DynamicCache(config=resident.model.config)
    ids = torch.tensor([prefix], device=resident.device)
    resident.logits(ids, torch.tensor([len(prefix) - 1], device=resident.device), cache=cache)
    layers: Any = cache.layers
    for layer in layers:
        kept = layer.keys.shape[-2] if type(layer) in _PLAIN_LAYERS and layer.is_initialized else 0
        if kept != len(prefix):
            raise EngineError(f"a layer ({type(layer).__name__}) keeps {kept} of {len(prefix)} tokens' keys")
    return [PrefixLayer(layer.keys, layer.values) for layer in layers]


def common_length(sequences: Sequence[Ids]) -> int:
    """Return how many tokens all sequences begin with."""
    first, last = min(sequences), max(sequences)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
