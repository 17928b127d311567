"""Whole layers as a run has them, one after the other: what they take beyond their operators is not in these alone.

Sizes are tokens, `detail` the layers: hidden, heads, key and value heads, head size, inner width, whether the MLP is
gated and norms are layer norms, the length of a sequence, and how many there are.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.alone import COMPUTE, Alone, Maker, Sizes
from runtime.alone_states import shard_alone
from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.initial import Drawn
from runtime.layer import Layer
from runtime.parameters import fill

__all__ = ["MAKERS"]

SEED = 0


def _layers(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[nn.Sequential, Tensor]:
    hidden, heads, kv_heads, head_dim, ffn, gated, layernorm, length, count = detail
    model = ModelSpec(
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
    with device:
        root = nn.Sequential(*(Layer(index, model, Constants(), TensorParallel()) for index in range(count)))
    if device.type != "meta":
        fill(root, Drawn(model, SEED))
        shard_alone(root, device)
        root.set_requires_gradient_sync(False)
        root.set_reshard_after_backward(False)
    inputs = torch.randn(max(1, sizes[0] // length), min(length, sizes[0]), hidden, device=device).to(COMPUTE)
    return root, inputs.requires_grad_()


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
