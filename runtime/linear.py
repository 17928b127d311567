"""Matrix products and norms whose parameters know which part of the full tensors they are."""

import torch.nn.functional as F
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.parameters import Part, Piece, Sharded, Shared, replicated_rows

__all__ = ["Linear", "Norm", "column_pieces", "equal_part", "row_parallel"]


def equal_part(size: int, tensor: TensorParallel) -> Part:
    """This rank's part of something that is dealt out evenly over the tensor-parallel group."""
    each = size // tensor.size
    return Part(tensor.rank * each, (tensor.rank + 1) * each)


def column_pieces(name: str, rows: Part, inputs: int, *, copies: int = 1) -> tuple[Piece, Piece]:
    """Weight and bias of a product that computes some of the outputs; copies of a head each see part of the queries."""
    summed: Shared = "copies" if copies > 1 else "none"
    weight = Piece(f"{name}.weight", rows, Part(0, inputs), copies, summed)
    return weight, Piece(f"{name}.bias", rows, None, copies, summed)


def row_parallel(name: str, outputs: int, columns: Part, tensor: TensorParallel) -> tuple[Piece, Piece]:
    """Weight and bias of a product that sums over some of the inputs; the bias is added once, after the sum."""
    weight = Piece(f"{name}.weight", Part(0, outputs), columns)
    bias = replicated_rows(f"{name}.bias", outputs, None, copies=tensor.size, partial=tensor.sequence_parallel)
    return weight, bias


class Linear(Sharded):
    """A product with a stack of matrices, each with its bias or none with one."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, *pieces: tuple[Piece, Piece], bias: bool, adds_bias: bool = True) -> None:
        super().__init__()
        self.register_parameter("bias", None)
        self.adds_bias = adds_bias
        self.declare("weight", *(weight for weight, _ in pieces))
        if bias:
            self.declare("bias", *(one for _, one in pieces))

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., outputs]; without the bias where it is added after a sum over ranks."""
        return F.linear(inputs, self.weight, self.bias if self.adds_bias else None)

    def add_bias(self, outputs: Tensor) -> Tensor:
        """The outputs, summed over ranks, with the bias if there is one."""
        return outputs if self.bias is None else outputs + self.bias


class Norm(Sharded):
    """An RMS or layer norm over the last dimension."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self, name: str, width: int, model: ModelSpec, constants: Constants, tensor: TensorParallel, *, partial: bool
    ) -> None:
        super().__init__()
        self.epsilon = constants.norm_epsilon
        self.width = width
        self.register_parameter("bias", None)
        self.is_layer_norm = model.norm == "layernorm"
        for attribute in ("weight", "bias") if self.is_layer_norm else ("weight",):
            piece = replicated_rows(f"{name}.{attribute}", width, None, copies=tensor.size, partial=partial)
            self.declare(attribute, piece)

    def forward(self, inputs: Tensor) -> Tensor:
        """The normed inputs, scaled."""
        if self.is_layer_norm:
            return F.layer_norm(inputs, (self.width,), self.weight, self.bias, self.epsilon)
        return F.rms_norm(inputs, (self.width,), self.weight, self.epsilon)
