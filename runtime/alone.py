"""Every operator that a run executes, alone: what a profiler times is the run's own code on drawn tensors.

A maker takes the sizes that the operator's seconds are a function of, `detail` (sizes that its tensors need besides)
and a device; it returns one repetition and the bytes of its tensors. `activation`, `norm` and the like are counted by
`rows`, which the caller derives from the bytes that the cost model counts.
"""

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from runtime.attention import core, rotated
from runtime.groups import TensorParallel
from runtime.loss import vocabulary_cross_entropy
from runtime.mlp import activated
from runtime.optimizer import Settings, adamw_of, scale, square_sum
from runtime.parameters import local_part
from runtime.sharding import param_groups

__all__ = ["MAKERS", "Alone"]

COMPUTE, STORED = torch.bfloat16, torch.float32
EPSILON = 1e-5
Sizes = tuple[int, ...]


class Alone(NamedTuple):
    """One repetition of an operator, and the bytes of the tensors that it reads and writes."""

    run: Callable[[], object]
    bytes: int


Maker = Callable[[Sizes, Sizes, torch.device], Alone]


def _gemm_forward(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    rows, columns, inner = sizes
    inputs, weight = _drawn(device, rows, inner), _drawn(device, columns, inner)
    return Alone(lambda: F.linear(inputs, weight), _bytes(inputs, weight) + 2 * rows * columns)


def _gemm_input_grad(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    rows, columns, inner = sizes
    gradient, weight = _drawn(device, rows, inner), _drawn(device, inner, columns)
    return Alone(lambda: gradient.mm(weight), _bytes(gradient, weight) + 2 * rows * columns)


def _gemm_weight_grad(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    rows, columns, inner = sizes
    gradient, inputs = _drawn(device, inner, rows), _drawn(device, inner, columns)
    return Alone(lambda: gradient.t().mm(inputs), _bytes(gradient, inputs) + 2 * rows * columns)


def _attention(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values as projections leave them, and what core attention makes of them."""
    batch, heads, queries, keys, width = sizes
    kv_heads, window = detail
    shapes = [(queries, heads), (keys, kv_heads), (keys, kv_heads)]
    parts = [_drawn(device, batch, length, count, width).requires_grad_() for length, count in shapes]
    heads_first = [part.transpose(1, 2) for part in parts]
    return parts, core(*heads_first, window=window, kind="sliding")


def _attention_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    batch, heads, queries, keys, width = sizes
    kv_heads, window = detail
    shapes = [(queries, heads), (keys, kv_heads), (keys, kv_heads)]
    parts = [_drawn(device, batch, length, count, width).requires_grad_() for length, count in shapes]
    heads_first = [part.transpose(1, 2) for part in parts]
    return Alone(lambda: core(*heads_first, window=window, kind="sliding"), 2 * _bytes(*parts))


def _attention_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, output = _attention(sizes, detail, device)
    return _backward(output, parts)


def _norm(detail: Sizes, rows: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    width, is_layer_norm = detail
    inputs, weight = _drawn(device, 1, rows, width).requires_grad_(), _drawn(device, width).requires_grad_()
    if is_layer_norm:
        bias = _drawn(device, width).requires_grad_()
        return [inputs, weight, bias], F.layer_norm(inputs, (width,), weight, bias, EPSILON)
    return [inputs, weight], F.rms_norm(inputs, (width,), weight, EPSILON)


def _norm_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    (rows,), (width, is_layer_norm) = sizes, detail
    inputs, weight = _drawn(device, 1, rows, width).requires_grad_(), _drawn(device, width).requires_grad_()
    if is_layer_norm:
        return Alone(lambda: F.layer_norm(inputs, (width,), weight, weight, EPSILON), 2 * _bytes(inputs))
    return Alone(lambda: F.rms_norm(inputs, (width,), weight, EPSILON), 2 * _bytes(inputs))


def _norm_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    operands, output = _norm(detail, sizes[0], device)
    return _backward(output, operands)


def _activation_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    (rows,), (width, gated) = sizes, detail
    before = _drawn(device, 1, rows, width * (1 + gated)).requires_grad_()
    return Alone(lambda: activated(before, gated=bool(gated)), 2 * _bytes(before))


def _activation_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    (rows,), (width, gated) = sizes, detail
    before = _drawn(device, 1, rows, width * (1 + gated)).requires_grad_()
    return _backward(activated(before, gated=bool(gated)), [before])


def _rotary(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Rows are tokens; a sequence has at most `length` of them."""
    (rows,), (heads, kv_heads, width, length) = sizes, detail
    batch = max(1, rows // length)
    parts = [_drawn(device, batch, rows // batch, count, width).requires_grad_() for count in (heads, kv_heads)]
    return parts, torch.empty(0)


def _rotary_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, _ = _rotary(sizes, detail, device)
    query, key = (part.transpose(1, 2) for part in parts)
    return Alone(lambda: rotated(query, key, 10_000.0), 2 * _bytes(*parts))


def _rotary_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, _ = _rotary(sizes, detail, device)
    query, key = (part.transpose(1, 2) for part in parts)
    outputs = rotated(query, key, 10_000.0)
    gradients = [torch.randn_like(output) for output in outputs]
    return Alone(
        lambda: torch.autograd.grad(outputs, parts, gradients, retain_graph=True), _bytes(*parts, *gradients)
    )


def _residual(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    (rows,), (width,) = sizes, detail
    stream, added = (_drawn(device, 1, rows, width) for _ in range(2))
    return Alone(lambda: stream + added, 3 * _bytes(stream))


def _loss(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[Tensor, Tensor, int]:
    (rows,), (vocab,) = sizes, detail
    logits = _drawn(device, 1, rows, vocab).requires_grad_()
    return logits, torch.randint(vocab, (1, rows), device=device), vocab


def _loss_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    logits, targets, vocab = _loss(sizes, detail, device)
    return Alone(lambda: vocabulary_cross_entropy(logits, targets, vocab, TensorParallel()).mean(), 3 * _bytes(logits))


def _loss_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    logits, targets, vocab = _loss(sizes, detail, device)
    loss = vocabulary_cross_entropy(logits, targets, vocab, TensorParallel()).mean()
    return Alone(lambda: torch.autograd.grad(loss, logits, retain_graph=True), 4 * _bytes(logits))


def _embedding(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[Tensor, Tensor]:
    (rows,), (width, vocab) = sizes, detail
    return torch.randint(vocab, (1, rows), device=device), _drawn(device, vocab, width).requires_grad_()


def _embedding_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    tokens, weight = _embedding(sizes, detail, device)
    is_here = tokens >= 0
    size = sizes[0] * detail[0] * 2
    return Alone(lambda: F.embedding(tokens.where(is_here, 0), weight) * is_here.unsqueeze(-1), 3 * size)


def _embedding_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    tokens, weight = _embedding(sizes, detail, device)
    return _backward(F.embedding(tokens, weight), [weight])


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
    """Layers whose states FSDP2 keeps for this rank alone, as a plan without data parallelism has them."""
    mesh = _own_mesh(dist.get_world_size(), device.type)
    mixed = MixedPrecisionPolicy(param_dtype=COMPUTE, reduce_dtype=STORED, cast_forward_inputs=False)
    root = nn.Sequential(*(_Layer(shapes, device) for shapes in _layer_shapes(detail, sizes[0])))
    for module in (*root, root):
        fully_shard(module, mesh=mesh, reshard_after_forward=False, mp_policy=mixed)
    root(torch.zeros(1, device=device))  # FSDP2 sets itself up at the first forward
    layers: list[Any] = list(root)
    return root, layers


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
    """The gradients of one micro-batch brought to where they pile up: whole, or reduced to where the optimizer reads."""
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
    gradients = [torch.randn_like(parameter) for parameter in parameters]
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


def _backward(output: Tensor, operands: list[Tensor]) -> Alone:
    gradient = torch.randn_like(output)
    run = lambda: torch.autograd.grad(output, operands, gradient, retain_graph=True)  # noqa: E731
    return Alone(run, 2 * _bytes(*operands) + _bytes(gradient))


def _drawn(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device, dtype=COMPUTE)


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


MAKERS: Mapping[str, Maker] = {
    "gemm_forward": _gemm_forward,
    "gemm_input_grad": _gemm_input_grad,
    "gemm_weight_grad": _gemm_weight_grad,
    "attention_forward": _attention_forward,
    "attention_backward": _attention_backward,
    "norm_forward": _norm_forward,
    "norm_backward": _norm_backward,
    "activation_forward": _activation_forward,
    "activation_backward": _activation_backward,
    "rotary_forward": _rotary_forward,
    "rotary_backward": _rotary_backward,
    "residual_forward": _residual,
    "residual_backward": _residual,
    "loss_forward": _loss_forward,
    "loss_backward": _loss_backward,
    "embedding_forward": _embedding_forward,
    "embedding_backward": _embedding_backward,
    "parameter_copy": _parameter_copy,
    "gradient_copy": _gradient_copy,
    "gradient_accumulation": _gradient_accumulation,
    "optimizer_step": _optimizer_step,
}
