"""What a run does with model states, alone: weights copied to where products read them, gradients, the optimizer.

Sizes are parameters, `detail` the widths of a layer: hidden, queries, keys, matrices up, inner width of the MLP.
"""

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from runtime.alone import Alone, Maker, Sizes
from runtime.optimizer import Settings, adamw_of, scale, square_sum
from runtime.parameters import local_part
from runtime.sharding import param_groups

__all__ = ["MAKERS", "shard_alone"]

COMPUTE, STORED = torch.bfloat16, torch.float32


def _layer_shapes(detail: Sizes, parameters: int) -> list[list[tuple[int, ...]]]:
    """Shapes of the parameters of some layers that have so many together; a part of a layer has fewer rows."""
    hidden, query, key_value, matrices, ffn = detail
    whole = [(hidden,), (query + 2 * key_value, hidden), (hidden, query), (hidden,), (matrices * ffn, hidden)]
    whole.append((hidden, ffn))
    each = sum(prod(shape) for shape in whole)
    layers = max(1, round(parameters / each))
    scale = parameters / (layers * each)
    rows = [(max(1, round(shape[0] * scale)), *shape[1:]) for shape in whole]
    return [rows] * layers


def _sharded(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[nn.Sequential, list[FSDPModule]]:
    """Layers whose states FSDP2 keeps for this rank alone, as a plan without data parallelism has them.

    Their parameters are those that the optimizer steps, in fp32, until they are gathered.
    """
    root = nn.Sequential(*(_Layer(shapes, device) for shapes in _layer_shapes(detail, sizes[0])))
    shard_alone(root, device)
    root(torch.zeros(1, device=device))  # FSDP2 sets itself up at the first forward, and gathers all
    layers: list[Any] = list(root)
    for layer in layers:
        layer.reshard()
    return root, layers


def shard_alone(root: nn.Sequential, device: torch.device) -> None:
    """Makes each layer a unit of FSDP2 whose states this rank keeps for itself."""
    mesh = _own_mesh(dist.get_world_size(), device.type)
    mixed = MixedPrecisionPolicy(param_dtype=COMPUTE, reduce_dtype=STORED, cast_forward_inputs=False)
    for module in (*root, root):
        fully_shard(module, mesh=mesh, reshard_after_forward=False, mp_policy=mixed)


@cache
def _own_mesh(size: int, device_type: str) -> DeviceMesh:
    return init_device_mesh(device_type, (size, 1), mesh_dim_names=("others", "own"))["own"]


class _Layer(nn.Module):
    """Parameters that take part in a loss without any work to speak of."""

    def __init__(self, shapes: list[tuple[int, ...]], device: torch.device) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(shape, device=device)) for shape in shapes)

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs; what the parameters get for a gradient is set by the caller."""
        return inputs


def _parameter_copy(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    """Weights gathered for their products, of this rank alone: cast, copied into place and freed."""
    _, layers = _sharded(sizes, detail, device)

    def run() -> None:
        for layer in layers:
            layer.unshard()
        for layer in layers:
            layer.reshard()

    return Alone(run, sizes[0] * (4 + 2 + 2))


def _collected(sizes: Sizes, detail: Sizes, device: torch.device, *, reduced: bool) -> Alone:
    """Gradients of one micro-batch brought to where they pile up: whole, or reduced to where the optimizer reads."""
    root, layers = _sharded(sizes, detail, device)
    for layer in layers:
        layer.set_requires_gradient_sync(reduced)
        layer.set_reshard_after_backward(False)
        layer.unshard()
    groups = [group for group in param_groups(root) if group.fsdp_params]
    drawn = [[torch.randn_like(part.unsharded_param) for part in group.fsdp_params] for group in groups]

    def run() -> None:
        for group, gradients in zip(groups, drawn, strict=True):
            for part, gradient in zip(group.fsdp_params, gradients, strict=True):
                part.unsharded_param.grad = gradient
            group.post_backward()

    run()  # from the second micro-batch on gradients are added to those before
    return Alone(run, sizes[0] * (2 + 4 + 4))


def _gradient_copy(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    return _collected(sizes, detail, device, reduced=True)


def _gradient_accumulation(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    return _collected(sizes, detail, device, reduced=False)


def _optimizer_step(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    """The norm of gradients, their scaling, and AdamW, over the parameters of some layers."""
    _, layers = _sharded(sizes, detail, device)
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    for gradient in gradients:
        local_part(gradient).normal_()
    adamw = adamw_of(parameters, Settings())

    def run() -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for parameter in parameters:
            square_sum(local_part(parameter.grad))
        scale([parameter.grad for parameter in parameters], 0.999)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return Alone(run, 4 * 4 * sizes[0])


MAKERS: Mapping[str, Maker] = {
    "parameter_copy": _parameter_copy,
    "gradient_copy": _gradient_copy,
    "gradient_accumulation": _gradient_accumulation,
    "optimizer_step": _optimizer_step,
}
