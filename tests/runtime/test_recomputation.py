"""What a layer keeps for its backward, in bytes: recomputing frees what it says and changes no gradient."""

import gc
import time
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
from runtime.recomputation import Forgetting
from runtime.rerun import run_again
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
        """Of storages that are alive, the fewest of some looks: Gloo's threads let go a while after a collective."""
        return min(self._bytes_now(wait_s) for wait_s in (0.0, 0.02, 0.05, 0.2) if not wait_s or dist.is_initialized())

    def _bytes_now(self, wait_s: float) -> int:
        time.sleep(wait_s)
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


def test_a_graph_that_is_dropped_is_gone() -> None:
    """An exponential keeps its own output: a split backward skips its node, and nothing else would ever free it."""
    inputs = torch.ones(4, requires_grad=True)
    with Forgetting():
        output = inputs.exp()
    kept = weakref.ref(output.untyped_storage())
    del output
    gc.collect()
    assert kept() is None


def test_a_part_runs_again_once_however_its_backward_is_split() -> None:
    """One call for the input's gradient and one for each weight, as pipelines do; gradients are those of one call."""
    first, second = (torch.nn.Linear(8, 8, bias=False).double() for _ in range(2))
    calls = []

    def part(hidden: Tensor) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return second(first(hidden).tanh()).sin()

    hidden = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    wanted = [hidden, first.weight, second.weight]
    expected = torch.autograd.grad(part(hidden).sum(), wanted)
    calls.clear()
    output = run_again(part, hidden).sum()
    found = [torch.autograd.grad(output, one, retain_graph=True)[0] for one in wanted]
    assert calls == [True, True]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_ran_again_goes_as_it_is_used() -> None:
    """A whole backward frees each tensor behind the node that needed it, and no part runs on behind its last one."""
    inputs = torch.randn(64, requires_grad=True)
    alive: list[weakref.ref[Any]] = []

    def part(hidden: Tensor) -> Tensor:
        for _ in range(4):
            hidden = hidden.exp().sin()
            alive.append(weakref.ref(hidden.untyped_storage()))
        return hidden

    output = run_again(part, inputs)
    output.sum().backward()
    del output
    assert len(alive) == 4 + 3
    assert all(one() is None for one in alive)
    with torch.no_grad():
        assert run_again(part, inputs).shape == inputs.shape
