"""What a layer keeps for its backward, in bytes: recomputing frees what it says and changes no gradient."""

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.initial import Drawn
from runtime.layer import Layer
from runtime.parameters import fill
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_model

B, S = 2, 16
MODEL = small_model(norm="layernorm")  # RMS norms are fused on GPUs only
ITEM_BYTES = 8
RESIDUAL = B * S * MODEL.hidden * ITEM_BYTES
ACTIVATION = B * S * MODEL.ffn * ITEM_BYTES


class Kept(TorchDispatchMode):
    """Counts the bytes of tensors made in a block that are still there behind it, without views of those `before`."""

    def __init__(self, *before: Tensor) -> None:
        super().__init__()
        self._before = {tensor.untyped_storage()._cdata for tensor in before}
        self._storages: dict[int, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in self._before:
                storage = leaf.untyped_storage()
                self._storages[storage._cdata] = weakref.ref(storage)
        return output

    def bytes(self) -> int:
        """Of storages that are alive."""
        gc.collect()
        alive = [storage() for storage in self._storages.values()]
        return sum(storage.nbytes() for storage in alive if storage is not None)


def kept_and_gradients(modules: tuple[str, ...], tensor: TensorParallel) -> tuple[int, list[Tensor]]:
    """Bytes that a layer keeps beside its input and output, and all gradients."""
    layer = Layer(0, MODEL, Constants(), tensor, frozenset(modules)).double()
    fill(layer, Drawn(MODEL, 1, scatter=True))
    length = S // tensor.size if tensor.sequence_parallel else S
    drawn = torch.randn(B, length, MODEL.hidden, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    hidden = drawn.requires_grad_()
    with Kept(hidden, *layer.parameters()) as kept:
        output = layer(hidden)
    size = kept.bytes() - output.untyped_storage().nbytes()
    output.square().sum().backward()
    return size, [hidden.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize(
    ("modules", "freed"),
    [
        (("norm",), 2 * RESIDUAL),
        (("activation",), ACTIVATION),
        (("norm", "activation"), 2 * RESIDUAL + ACTIVATION),
    ],
)
def test_recomputing_frees_what_it_makes_again(modules: tuple[str, ...], freed: int) -> None:
    """Two norms' outputs, or the input of the MLP's second product, and nothing else."""
    everything, gradients = kept_and_gradients((), TensorParallel())
    size, again = kept_and_gradients(modules, TensorParallel())
    assert everything - size == freed
    assert all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))


@pytest.mark.parametrize("module", ["core_attention", "mlp", "full"])
def test_checkpoints_free_more_the_more_they_cover(module: str) -> None:
    """The core attention frees its scores; the MLP all that is between the residual and its output; full everything."""
    everything, gradients = kept_and_gradients((), TensorParallel())
    size, again = kept_and_gradients((module,), TensorParallel())
    assert (size == 0) if module == "full" else (0 < size < everything)
    assert all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))


def kept_on_ranks(sequence_parallel: bool) -> int:
    """Bytes kept by a rank of a tensor-parallel group of all ranks."""
    size, rank = dist.get_world_size(), dist.get_rank()
    group = dist.group.WORLD
    return kept_and_gradients((), TensorParallel(size, rank, group, sequence_parallel=sequence_parallel))[0]


def test_gathered_tokens_are_not_kept(ranks: Ranks) -> None:
    """With sequence parallelism a rank keeps its part of the norms' outputs and residuals, and gathers them again."""
    whole, parts = max(ranks(2).run(kept_on_ranks, False)), max(ranks(2).run(kept_on_ranks, True))
    # Halves of the two norms' outputs, of the residual between attention and MLP, and of the norms' statistics.
    assert whole - parts == (3 * RESIDUAL + 4 * B * S * ITEM_BYTES) // 2
