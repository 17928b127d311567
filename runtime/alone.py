"""Every compute operator that a run executes, alone: what a profiler times is the run's own code on drawn tensors.

A maker takes the sizes that the operator's seconds are a function of, `detail` (sizes that its tensors need besides)
and a device; it returns one repetition and the bytes of its tensors. Memory-bound operators are counted by rows:
tokens, each as wide as `detail` says.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.attention import fused_attention, rotated
from runtime.groups import TensorParallel
from runtime.loss import vocabulary_cross_entropy
from runtime.mlp import activated

__all__ = ["MAKERS", "Alone", "Maker", "Sizes"]

COMPUTE = torch.bfloat16
EPSILON = 1e-5
BLOCK = 2**18
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


def _attention(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """Queries, keys and values as projections leave them, and core attention of them."""
    batch, heads, queries, keys, width = sizes
    (kv_heads,) = detail
    shapes = [(queries, heads), (keys, kv_heads), (keys, kv_heads)]
    parts = [_drawn(device, batch, length, count, width).requires_grad_() for length, count in shapes]
    query, key, value = (part.transpose(1, 2) for part in parts)
    return parts, lambda: fused_attention(query, key, value, None)


def _attention_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, run = _attention(sizes, detail, device)
    return Alone(run, 2 * _bytes(*parts))


def _attention_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, run = _attention(sizes, detail, device)
    return _backward(run(), parts)


def _norm(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[list[Tensor], Callable[[], Tensor]]:
    (rows,), (width, is_layer_norm) = sizes, detail
    inputs, weight = _drawn(device, 1, rows, width).requires_grad_(), _drawn(device, width).requires_grad_()
    if not is_layer_norm:
        return [inputs, weight], lambda: F.rms_norm(inputs, (width,), weight, EPSILON)
    bias = _drawn(device, width).requires_grad_()
    return [inputs, weight, bias], lambda: F.layer_norm(inputs, (width,), weight, bias, EPSILON)


def _norm_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    operands, run = _norm(sizes, detail, device)
    return Alone(run, 2 * _bytes(operands[0]))


def _norm_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    operands, run = _norm(sizes, detail, device)
    return _backward(run(), operands)


def _activation(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[Tensor, Callable[[], Tensor]]:
    (rows,), (width, gated) = sizes, detail
    before = _drawn(device, 1, rows, width * (1 + gated)).requires_grad_()
    return before, lambda: activated(before, gated=bool(gated))


def _activation_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    before, run = _activation(sizes, detail, device)
    return Alone(run, 2 * _bytes(before))


def _activation_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    before, run = _activation(sizes, detail, device)
    return _backward(run(), [before])


def _rotary(sizes: Sizes, detail: Sizes, device: torch.device) -> tuple[list[Tensor], Callable[[], list[Tensor]]]:
    """Rows are tokens; a sequence has at most `length` of them."""
    (rows,), (heads, kv_heads, width, length) = sizes, detail
    batch = max(1, rows // length)
    parts = [_drawn(device, batch, rows // batch, count, width).requires_grad_() for count in (heads, kv_heads)]
    query, key = (part.transpose(1, 2) for part in parts)
    positions = torch.arange(query.shape[2], device=device)
    return parts, lambda: rotated(query, key, positions, 10_000.0)


def _rotary_forward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, run = _rotary(sizes, detail, device)
    return Alone(run, 2 * _bytes(*parts))


def _rotary_backward(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    parts, run = _rotary(sizes, detail, device)
    outputs = run()
    gradients = [torch.randn_like(output) for output in outputs]
    return Alone(lambda: torch.autograd.grad(outputs, parts, gradients, retain_graph=True), _bytes(*parts, *gradients))


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


def _memory_copy(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    """So many bytes read, and as many written."""
    source = _drawn(device, max(1, sizes[0] // (2 * COMPUTE.itemsize)))
    target = torch.empty_like(source)
    return Alone(lambda: target.copy_(source), 2 * _bytes(source))


def _host_copy(sizes: Sizes, device: torch.device, *, to_device: bool) -> Alone:
    """So many bytes between pinned memory of the host and a GPU."""
    on_host = torch.empty(sizes[0], dtype=torch.uint8, pin_memory=True).random_(256)
    on_device = torch.empty(sizes[0], dtype=torch.uint8, device=device)
    target, source = (on_device, on_host) if to_device else (on_host, on_device)
    return Alone(lambda: target.copy_(source, non_blocking=True), sizes[0])


def _host_to_device(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    return _host_copy(sizes, device, to_device=True)


def _device_to_host(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    return _host_copy(sizes, device, to_device=False)


def _launch(_: Sizes, __: Sizes, device: torch.device) -> Alone:
    """The smallest operator there is; on a GPU the host does not wait for it."""
    one = torch.zeros(1, device=device)
    return Alone(lambda: one + one, 8)


def _backward(output: Tensor, operands: list[Tensor]) -> Alone:
    gradient = torch.randn_like(output)
    run = lambda: torch.autograd.grad(output, operands, gradient, retain_graph=True)  # noqa: E731
    return Alone(run, 2 * _bytes(*operands) + _bytes(gradient))


def _drawn(device: torch.device, *shape: int) -> Tensor:
    """Fresh normal numbers; of large tensors a block of them again and again, which is drawn in no time."""
    count = prod(shape)
    block = torch.randn(min(count, BLOCK), device=device).to(COMPUTE)
    return block.repeat(-(-count // BLOCK))[:count].view(shape)


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
    "memory_copy": _memory_copy,
    "host_to_device": _host_to_device,
    "device_to_host": _device_to_host,
    "launch": _launch,
}
