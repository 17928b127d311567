"""One transformer layer, and what of it the backward computes again."""

from collections.abc import Callable

from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.attention import Attention
from runtime.collectives import enter_briefly
from runtime.constants import Constants
from runtime.context import ContextParallel
from runtime.groups import TensorParallel
from runtime.linear import Norm
from runtime.mlp import Mlp
from runtime.recomputation import Forgetting
from runtime.rerun import run_again

__all__ = ["Layer"]

Part = Callable[[Tensor, Forgetting], Tensor]
ALONE = ContextParallel()


class Layer(nn.Module):
    """Attention and MLP on a residual stream [b, s or s / tp, h]."""

    def __init__(
        self,
        index: int,
        model: ModelSpec,
        constants: Constants,
        tensor: TensorParallel,
        recompute: frozenset[str] = frozenset(),
        context: ContextParallel = ALONE,
    ) -> None:
        super().__init__()
        self.tensor = tensor
        self.recompute = recompute
        self.parallel_block = model.parallel_block
        name = f"layers.{index}"
        window = model.layer_kinds[index].window

        def norm(part: str) -> Norm:
            partial = tensor.sequence_parallel
            return Norm(f"{name}.{part}_norm", model.hidden, model, constants, tensor, partial=partial)

        before, after = model.norm_placement != "after", model.norm_placement != "before"
        self.attention_norm = norm("attention") if before else None
        self.mlp_norm = norm("mlp") if before and not model.shared_norm else None
        self.attention_output_norm = norm("attention_output") if after else None
        self.mlp_output_norm = norm("mlp_output") if after else None
        self.attention = Attention(
            f"{name}.attention", model, constants, tensor, context, window=window, recompute=recompute
        )
        self.mlp = Mlp(f"{name}.mlp", model, tensor, recompute=recompute)

    def forward(self, hidden: Tensor) -> Tensor:
        """[b, s or s / tp, h] the residual stream behind the layer."""
        with Forgetting() as forgetting:
            return self._again_if("full", self._layer, hidden, forgetting)

    def _layer(self, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        normed = self._normed(hidden, self.attention_norm, forgetting)
        whole = enter_briefly(normed, self.tensor, forgetting)
        attended = self.attention(whole, forgetting)
        if self.attention_output_norm is not None:
            attended = self.attention_output_norm(attended)
        if not self.parallel_block:
            hidden = hidden + attended
            return hidden + self._mlp(hidden, forgetting)
        if self.mlp_norm is None:
            return hidden + attended + self._again_if("mlp", self.mlp, whole, forgetting)
        return hidden + attended + self._mlp(hidden, forgetting)

    def _mlp(self, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        output = self._again_if("mlp", self._behind_norm, hidden, forgetting)
        return output if self.mlp_output_norm is None else self.mlp_output_norm(output)

    def _behind_norm(self, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        whole = enter_briefly(self._normed(hidden, self.mlp_norm, forgetting), self.tensor, forgetting)
        return self.mlp(whole, forgetting)

    def _again_if(self, module: str, part: Part, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        """A part of the layer, run again in the backward where the module is recomputed; nothing is forgotten then."""
        if module not in self.recompute:
            return part(hidden, forgetting)
        return run_again(part, hidden, Forgetting())

    def _normed(self, hidden: Tensor, norm: Norm | None, forgetting: Forgetting) -> Tensor:
        if norm is None:
            return hidden
        return forgetting.forget(norm, hidden) if "norm" in self.recompute else norm(hidden)
