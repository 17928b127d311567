"""Tensors that are not kept for the backward but made again from what is.

Autograd's saved-tensor hooks replace a forgotten tensor by how it was made: a norm's output by its input, gathered
tokens by this rank's part of them. Unlike a checkpoint this runs no product again, which is what recomputing `norm` or
`activation` alone means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import torch
from torch import Tensor

__all__ = ["Forgetting"]

Operation = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class _Made:
    """How a tensor is made again."""

    operation: Operation
    inputs: "tuple[Tensor | _Made, ...]"

    def again(self) -> Tensor:
        inputs = [one.again() if isinstance(one, _Made) else one for one in self.inputs]
        with torch.no_grad():
            return self.operation(*inputs)


class _View(NamedTuple):
    """A view of a forgotten tensor, as autograd saved it."""

    made: _Made
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class Forgetting:
    """A block in which `forget` computes tensors that the backward makes again.

    Blocks do not nest. Nothing is forgotten outside a block: `forget` then only computes.
    """

    def __init__(self) -> None:
        # Tensors are held to the end of the block, so that no other can take the storage that names them.
        self._made: dict[int, tuple[Tensor, _Made]] = {}
        self._hooks: torch.autograd.graph.saved_tensors_hooks | None = None

    def __enter__(self) -> Self:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._hooks is not None
        self._hooks.__exit__(kind, error, trace)
        self._hooks = None
        self._made.clear()

    def forget(self, operation: Operation, *inputs: Tensor) -> Tensor:
        """The result of an operation on some tensors, of which only they are kept."""
        output = operation(*inputs)
        if self._hooks is not None:
            origins = tuple(self._origin(tensor) for tensor in inputs)
            self._made[_storage(output)] = output, _Made(operation, origins)
        return output

    def _origin(self, tensor: Tensor) -> Tensor | _Made:
        known = self._made.get(_storage(tensor))
        return known[1] if known and known[0] is tensor else tensor.detach()

    def _pack(self, tensor: Tensor) -> Tensor | _View:
        known = self._made.get(_storage(tensor))
        if known:
            return _View(known[1], tensor.size(), tensor.stride(), tensor.storage_offset())
        # A node that holds its own output would hold itself: where a split backward skips it, for ever.
        return tensor.detach()


def _unpack(packed: Tensor | _View) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    return packed.made.again().as_strided(packed.size, packed.stride, packed.offset)


def _storage(tensor: Tensor) -> int:
    """What tells storages apart, on every device; meta tensors have no address."""
    return int(tensor.untyped_storage()._cdata)
