"""A pipeline of stages: each rank computes some of the layers and passes what comes out on.

transformers loads a stage's share of the weights; its own forward pass lets one stage work at a time. Here a batch goes
through in pieces, so that a stage computes one while those behind it compute the pieces before:

    stage 0   1 2 3 4 · ·
    stage 1   · 1 2 3 4 ·        each number a piece of the batch's rows
    stage 2   · · 1 2 3 4
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers.distributed import mixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from fsctx.agent.engines.base import Split
from fsctx.agent.engines.hf.tree import PrefixLayer

PIECES_PER_STAGE = 4
"""The first stage waits for the last one during 1 of so many pieces and more: more pieces make smaller products."""

_BY_ROW = ("input_ids", "attention_mask", "position_ids")
_CACHES = ("cache", "past_key_values")


@contextmanager
def loadable_in_stages() -> Iterator[None]:
    """Let transformers load tensor-parallel stages: its plan names the other stages' modules, and it looks for them."""
    loader: Any = mixin
    apply = loader.apply_tensor_parallelism

    def apply_to_own(model: nn.Module, mesh: Any, plan: dict[str, str]) -> nn.Module:
        own = {name for name, module in model.named_modules() if not isinstance(module, nn.Identity)}
        own |= {name for name, _ in model.named_parameters()}
        applied: nn.Module = apply(model, mesh, {name: style for name, style in plan.items() if name in own})
        return applied

    loader.apply_tensor_parallelism = apply_to_own
    try:
        yield
    finally:
        loader.apply_tensor_parallelism = apply


def make_pipeline(model: Any, split: Split) -> None:
    """Make a model that was loaded as one stage compute as such: every rank calls it alike and gets all logits."""
    base = getattr(model, model.base_model_prefix)
    own = [number for number, layer in enumerate(base.layers) if any(True for _ in layer.parameters())]
    for number in set(range(len(base.layers))) - set(own):
        base.layers[number] = Elsewhere(number)
    stage = Stage(model, split)
    if not stage.is_first:
        base.layers[own[0]].register_forward_pre_hook(stage.take_over, with_kwargs=True)
    if not any(True for _ in base.embed_tokens.parameters()):
        base.embed_tokens = Blank(model.config.get_text_config().hidden_size, stage.dtype)
    model.forward = stage.wrap(type(model).forward.__get__(model))


class Elsewhere(nn.Module):
    """A layer that another stage computes. It keeps a cache's count of tokens, which the whole model goes by."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def forward(self, hidden: torch.Tensor, *_: Any, **arguments: Any) -> torch.Tensor:
        """Return the hidden states (B, Q, H) as they are."""
        cache = next((arguments[name] for name in _CACHES if arguments.get(name) is not None), None)
        if cache is not None:
            count = hidden.new_empty(len(hidden), 1, hidden.shape[1], 1)  # (B, 1, Q, 1): empty ones aren't counted
            cache.update(count, count, self._number)
        return hidden


class Blank(nn.Module):
    """Embeddings of a stage that has none: of the right shape, as the stage before's hidden states replace them."""

    def __init__(self, n_hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._n_hidden, self._dtype = n_hidden, dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return zeros (B, Q, H) that take no memory."""
        return torch.zeros(1, 1, 1, dtype=self._dtype, device=ids.device).expand(*ids.shape, self._n_hidden)


class Stage:
    """One stage's place in the pipeline. Ranks of a stage are numbered together, stage by stage."""

    def __init__(self, model: Any, split: Split) -> None:
        rank = dist.get_rank()
        self.is_first = rank < split.tp
        self.is_last = rank >= split.n_ranks - split.tp
        self.dtype: torch.dtype = model.dtype
        self._model = model
        self._n_pieces = PIECES_PER_STAGE * split.pp
        self._before, self._behind = rank - split.tp, rank + split.tp
        self._of_logits = split.n_ranks - split.tp

    def wrap(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the forward pass of the whole pipeline, by one of this stage."""

        @functools.wraps(forward)
        def whole(**arguments: Any) -> CausalLMOutputWithPast:
            caches = {name: arguments[name] for name in _CACHES if arguments.get(name) is not None}
            outputs, sent = [], []
            for piece in self._pieces(arguments, caches):
                if self.is_last:
                    outputs.append(forward(**piece).logits.float())
                else:
                    sent.append(self._send(piece))
            for work, _ in sent:
                work.wait()
            logits = self._share(torch.cat(outputs) if outputs else None)
            return CausalLMOutputWithPast(logits=logits, **caches)

        return whole

    def take_over(
        self, _layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the stage before's hidden states (B, Q, H) in the place of what this stage's first layer is given."""
        given = arguments[0] if arguments else named.pop("hidden_states")
        hidden = torch.empty(given.shape, dtype=self.dtype, device=given.device)
        dist.recv(hidden, self._before)
        return (hidden, *arguments[1:]), named

    def _pieces(self, arguments: dict[str, Any], caches: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Cut a batch by rows; not where a cache takes up what is computed, as that has all rows together."""
        n_rows = len(arguments["input_ids"])
        keeps_nothing = all(isinstance(layer, PrefixLayer) for cache in caches.values() for layer in cache.layers)
        n_pieces = min(self._n_pieces, n_rows) if keeps_nothing else 1
        for rows in torch.arange(n_rows).tensor_split(n_pieces):
            cut = slice(int(rows[0]), int(rows[-1]) + 1)
            by_row = {name: arguments[name] for name in _BY_ROW if arguments.get(name) is not None}
            yield arguments | {name: value[cut] for name, value in by_row.items() if len(value) == n_rows}

    def _send(self, piece: dict[str, Any]) -> tuple[Any, torch.Tensor]:
        """Compute this stage's layers and begin to send what comes out, which must be held until that is done."""
        base = getattr(self._model, self._model.base_model_prefix)
        piece = {name: value for name, value in piece.items() if name not in ("logits_to_keep", "labels")}
        hidden = base(**piece).last_hidden_state.to(self.dtype).contiguous()  # (B, Q, H)
        return dist.isend(hidden, self._behind), hidden

    def _share(self, logits: torch.Tensor | None) -> torch.Tensor:
        """Give all ranks the last stage's logits (B, K, V): they go on alike, whatever is decided by them."""
        device = next(self._model.parameters()).device
        shape = torch.tensor([0, 0, 0] if logits is None else logits.shape, device=device)
        dist.broadcast(shape, self._of_logits)
        if logits is None:
            logits = torch.empty(*shape.tolist(), device=device)
        logits = logits.contiguous()
        dist.broadcast(logits, self._of_logits)
        return logits
