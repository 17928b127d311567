"""Whole layers as a run has them, one after the other: what they take beyond their operators is not in these alone.

Sizes are tokens, `detail` the layers: hidden, heads, key and value heads, head size, inner width, whether the MLP is
gated and norms are layer norms, how many there are, and the length of a sequence. Of layers that tensor-parallel ranks
share also how many these are, and whether they share out the tokens outside attention and MLP.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from cost_models.specs.model import ModelSpec
from runtime.alone import COMPUTE, Alone, Maker, Sizes
from runtime.alone_links import group_of
from runtime.alone_states import shard_alone
from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.initial import Drawn
from runtime.layer import Layer
from runtime.parameters import fill
from runtime.sharding import Policy, ShardedChunk

__all__ = ["MAKERS", "SHARED_MAKERS", "bytes_of_layers", "layers_alone", "own_layers"]

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


def layers_alone(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[nn.Sequential, Tensor]:
    """Layers under FSDP2, whose gradients pile up, and what they are called with; without values on the meta device."""
    root = own_layers(detail, device)
    model, tensor = _model(detail[:OF_LAYERS]), _tensor(device, *detail[OF_LAYERS:])
    sequences, length = max(1, sizes[0] // model.max_seq_len), min(model.max_seq_len, sizes[0])
    own = length // tensor.size if tensor.sequence_parallel else length
    return root, torch.randn(sequences, own, model.hidden, device=device).to(COMPUTE).requires_grad_()


def own_layers(detail: Sizes, device: torch.device) -> nn.Sequential:
    """The layers alone."""
    model, tensor = _model(detail[:OF_LAYERS]), _tensor(device, *detail[OF_LAYERS:])
    with device:
        root = nn.Sequential(*(Layer(index, model, Constants(), tensor) for index in range(model.layers)))
    if device.type != "meta":
        fill(root, Drawn(model, SEED))
        shard_alone(root, device)
        root.set_requires_gradient_sync(False)
        root.set_reshard_after_backward(False)
    return root


def _tensor(device: torch.device, ranks: int = 1, shares_tokens: int = 0) -> TensorParallel:
    """The ranks that share a layer; without a group where nothing is run."""
    if ranks == 1:
        return TensorParallel()
    if device.type == "meta":
        return TensorParallel(size=ranks, sequence_parallel=bool(shares_tokens))
    group = group_of(ranks)
    return TensorParallel(ranks, dist.get_rank(group), group, sequence_parallel=bool(shares_tokens))


def _forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    root, inputs = layers_alone(sizes, detail, device)
    return Alone(lambda: root(inputs), bytes_of_layers(root, inputs))


def _both_ways(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    """Forward and backward of one micro-batch, whose gradients pile up with those of the ones before."""
    root, inputs = layers_alone(sizes, detail, device)
    gradient = torch.randn_like(inputs)

    def run() -> None:
        root(inputs).backward(gradient)

    return Alone(run, bytes_of_layers(root, inputs))


def _split(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    """The same, the backward in two parts as the pipeline runs it: towards the input, then of the weights."""
    root, inputs = layers_alone(sizes, detail, device)
    size = bytes_of_layers(root, inputs)
    if device.type == "meta":  # where nothing is sharded
        return Alone(lambda: None, size)
    gradient = torch.randn_like(inputs)
    chunk = ShardedChunk(root, Policy(reduces_each_micro_batch=False, reshards=False))

    def run() -> None:
        output = chunk(inputs)
        chunk.unshard()
        _, groups = stage_backward_input([output], [gradient], [inputs], chunk.parameters())
        chunk.unshard()
        stage_backward_weight(chunk.parameters(), groups)
        chunk.collect_gradients(last=False)

    return Alone(run, size)


def bytes_of_layers(root: nn.Sequential, inputs: Tensor) -> int:
    """Parameters in fp32 and bf16 with two gradients, and activations of about forty residuals a layer."""
    parameters = sum(parameter.numel() for parameter in root.parameters())
    return 12 * parameters + 40 * len(root) * inputs.nbytes


MAKERS: Mapping[str, Maker] = {
    "layers_forward": _forward,
    "layers_both_ways": _both_ways,
    "layers_split": _split,
}
SHARED_MAKERS: Mapping[str, Maker] = {f"shared_{name}": maker for name, maker in MAKERS.items()}
