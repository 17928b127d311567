"""Whole layers as a run has them, one after the other: what they take beyond their operators is not in these alone.

Sizes are tokens, `detail` the layers: hidden, heads, key and value heads, head size, inner width, whether the MLP is
gated and norms are layer norms, how many there are, and the length of a sequence. Of layers that tensor-parallel ranks
share also how many these are, and whether they share out the tokens outside attention and MLP.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.alone import COMPUTE, Alone, Maker, Sizes
from runtime.alone_links import group_of
from runtime.alone_states import shard_alone
from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.initial import Drawn
from runtime.layer import Layer
from runtime.parameters import fill

__all__ = ["MAKERS", "SHARED_MAKERS"]

SEED = 0
# Numbers of `detail` that say what a layer is, without those of the ranks that share it.
OF_LAYERS = 9


def _model(detail: Sizes) -> ModelSpec:
    hidden, heads, kv_heads, head_dim, ffn, gated, layernorm, count, length = detail
    return ModelSpec(
        name="layers",
        layers=count,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=heads,
        max_seq_len=length,
        gated_mlp=bool(gated),
        norm="layernorm" if layernorm else "rmsnorm",
        positions="learned" if layernorm else "rope",
    )


def _layers(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[nn.Sequential, Tensor]:
    model, tensor = _model(detail[:OF_LAYERS]), _tensor(device, *detail[OF_LAYERS:])
    with device:
        root = nn.Sequential(*(Layer(index, model, Constants(), tensor) for index in range(model.layers)))
    if device.type != "meta":
        fill(root, Drawn(model, SEED))
        shard_alone(root, device)
        root.set_requires_gradient_sync(False)
        root.set_reshard_after_backward(False)
    sequences, length = max(1, sizes[0] // model.max_seq_len), min(model.max_seq_len, sizes[0])
    own = length // tensor.size if tensor.sequence_parallel else length
    return root, torch.randn(sequences, own, model.hidden, device=device).to(COMPUTE).requires_grad_()


def _tensor(device: torch.device, ranks: int = 1, shares_tokens: int = 0) -> TensorParallel:
    """The ranks that share a layer; without a group where nothing is run."""
    if ranks == 1:
        return TensorParallel()
    if device.type == "meta":
        return TensorParallel(size=ranks, sequence_parallel=bool(shares_tokens))
    group = group_of(ranks)
    return TensorParallel(ranks, dist.get_rank(group), group, sequence_parallel=bool(shares_tokens))


def _forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    root, inputs = _layers(sizes, detail, device)
    return Alone(lambda: root(inputs), _bytes(root, inputs))


def _both_ways(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    """Forward and backward of one micro-batch, whose gradients pile up with those of the ones before."""
    root, inputs = _layers(sizes, detail, device)
    gradient = torch.randn_like(inputs)

    def run() -> None:
        root(inputs).backward(gradient)

    return Alone(run, _bytes(root, inputs))


def _bytes(root: nn.Sequential, inputs: Tensor) -> int:
    """Parameters in fp32 and bf16 with two gradients, and activations of about forty residuals a layer."""
    parameters = sum(parameter.numel() for parameter in root.parameters())
    return 12 * parameters + 40 * len(root) * inputs.nbytes


MAKERS: Mapping[str, Maker] = {"layers_forward": _forward, "layers_both_ways": _both_ways}
SHARED_MAKERS: Mapping[str, Maker] = {f"shared_{name}": maker for name, maker in MAKERS.items()}
