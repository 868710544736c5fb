"""The float32 head of a model whose layers are split: each rank has the logits of its part of the vocabulary."""

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from fsctx.agent.engines.hf.resident import float32_logits


def use_split_head(model: Any) -> None:
    """Make a model's output layer compute in float32, where it is split (see `Float32Head`)."""
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear) and isinstance(head.weight, DTensor):
        model.set_output_embeddings(SplitHead(head))


class SplitHead(nn.Module):
    """A float32 head of this rank's words, whose logits are put together with the other ranks'."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight: Any = head.weight
        self.bias: Any = head.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits (..., V) of hidden states (..., H)."""
        bias = self.bias.to_local() if isinstance(self.bias, DTensor) else self.bias
        own = float32_logits(hidden, self.weight.to_local(), bias)  # (..., this rank's part of V)
        shape = torch.Size((*hidden.shape[:-1], self.weight.shape[0]))
        placements = [Shard(-1) if placement.is_shard() else placement for placement in self.weight.placements]
        split = DTensor.from_local(
            own,
            self.weight.device_mesh,
            placements,
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )
        logits: torch.Tensor = split.full_tensor()
        return logits
