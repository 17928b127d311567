"""The dense MLP: gated (SwiGLU) or with one matrix up (GELU), its width dealt out over the tensor-parallel group."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.collectives import leave
from runtime.groups import TensorParallel
from runtime.linear import Linear, column_pieces, equal_part, row_parallel
from runtime.recomputation import Forgetting

__all__ = ["Mlp", "activated"]


class Mlp(nn.Module):
    """The MLP half of a layer, behind its norm."""

    def __init__(self, name: str, model: ModelSpec, tensor: TensorParallel, *, recompute: frozenset[str]) -> None:
        super().__init__()
        self.tensor = tensor
        self.gated = model.gated_mlp
        self.forgets_activation = "activation" in recompute
        width = equal_part(model.ffn, tensor)
        matrices = ("gate", "up") if model.gated_mlp else ("up",)
        self.up = Linear(
            *(column_pieces(f"{name}.{one}", width, model.hidden) for one in matrices), bias=model.mlp_bias
        )
        down = row_parallel(f"{name}.down", model.hidden, width, tensor)
        self.down = Linear(down, bias=model.mlp_bias, adds_bias=False)

    def forward(self, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        """[b, s or s / tp, h] from [b, s, h], which every rank of the group has whole."""
        before = self.up(hidden)
        inner = forgetting.forget(self._activated, before) if self.forgets_activation else self._activated(before)
        return self.down.add_bias(leave(self.down(inner), self.tensor))

    def _activated(self, before: Tensor) -> Tensor:
        return activated(before, gated=self.gated)


def activated(before: Tensor, *, gated: bool) -> Tensor:
    """gelu of [..., width], or silu(gate) * up of [..., gate and up]."""
    if not gated:
        return F.gelu(before, approximate="tanh")
    result: Tensor = _GatedActivation.apply(before)
    return result


class _GatedActivation(torch.autograd.Function):
    """silu(gate) * up of [..., gate and up], which keeps its input alone, as a fused kernel does."""

    @staticmethod
    def forward(context: Any, before: Tensor) -> Tensor:
        context.save_for_backward(before)
        gate, up = before.chunk(2, dim=-1)
        return F.silu(gate) * up

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (before,) = context.saved_tensors
        gate, up = before.chunk(2, dim=-1)
        sigmoid = gate.sigmoid()
        of_gate = gradients[0] * up * sigmoid * (1 + gate * (1 - sigmoid))
        return torch.cat([of_gate, gradients[0] * gate * sigmoid], dim=-1)
