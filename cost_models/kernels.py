"""How a compute operator becomes seconds: roofline forms with a device's measured constants.

Constants and their sources are in the profile (data/profiles). A causal attention's rate falls when there are fewer
tiles than multiprocessors to work on them and when sequences are short: one constant would be wrong by 2-4x.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.specs.gpu import GpuSpec
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["bind"]

Array = NDArray[np.float64]

OPERAND_BYTES = {"bf16": 2, "fp8": 1}
OUTPUT_BYTES = 2  # products of fp8 operands come out in bf16 too
# A grouped product works on tiles of tokens of one expert; the last of each is part-filled, half on average.
GROUP_TILE_TOKENS = 128
# A fused backward runs five products of which two are the forward's (Dao 2023, FlashAttention-2).
BACKWARD_PRODUCTS = 2.5


def bind(gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, dtype: str) -> dict[str, Callable[..., Any]]:
    """Numpy bodies, by operator name, of every compute operator on this device; all return seconds."""
    launch_s = 0.0 if recipe.cuda_graphs else profile.host_launch_s
    return {
        **_gemm(gpu, profile, recipe, dtype),
        **_attention(gpu, profile),
        **_elementwise(gpu, profile),
        "launch_s": lambda kernels: kernels * launch_s,
    }


def _gemm(gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, dtype: str) -> dict[str, Callable[..., Any]]:
    constants = profile.gemm[dtype]
    rate = gpu.peak_flops[dtype] * constants.peak_fraction * profile.sustained_fraction
    bandwidth = gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    operand = OPERAND_BYTES[dtype]
    accumulator = 2 * recipe.gradient_bytes  # the weight gradient is read, added to and written

    def roofline(multiplied: Array, traffic: Array) -> Array:
        return np.maximum(2.0 * multiplied / rate, traffic / bandwidth) + constants.launch_s

    def seconds(rows: Array, columns: Array, inner: Array, output_bytes: float = OUTPUT_BYTES) -> Array:
        traffic = operand * (rows * inner + inner * columns) + output_bytes * rows * columns
        return roofline(1.0 * rows * columns * inner, traffic)

    def grouped(rows: Array, columns: Array, inner: Array, groups: Array) -> Array:
        traffic = operand * (rows * inner + groups * inner * columns) + OUTPUT_BYTES * rows * columns
        return roofline(_in_tiles(rows, groups) * columns * inner, traffic)

    def grouped_weight_grad(rows: Array, columns: Array, inner: Array, groups: Array) -> Array:
        traffic = operand * (rows * inner + inner * columns) + accumulator * groups * rows * columns
        return roofline(1.0 * rows * columns * _in_tiles(inner, groups), traffic)

    return {
        "gemm_forward_s": seconds,
        "gemm_input_grad_s": seconds,
        "gemm_weight_grad_s": lambda rows, columns, inner: seconds(rows, columns, inner, accumulator),
        "grouped_gemm_forward_s": grouped,
        "grouped_gemm_input_grad_s": grouped,
        "grouped_gemm_weight_grad_s": grouped_weight_grad,
    }


def _in_tiles(tokens: Array, groups: Array) -> Array:
    """Tokens that are multiplied when each group's share is filled up to whole tiles, smoothly: half a tile a group."""
    return tokens + groups * GROUP_TILE_TOKENS / 2.0


def _attention(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    constants = profile.attention
    tiles_when_full = constants.tiles_per_multiprocessor * gpu.streaming_multiprocessors
    # Attention stays in bf16 when the matrix products are fp8.
    rate = gpu.peak_flops["bf16"] * constants.peak_fraction * profile.sustained_fraction
    launch = profile.gemm["bf16"].launch_s

    def body(batch: Array, heads: Array, queries: Array, keys: Array, head_dim: Array) -> Array:
        flops = 2.0 * batch * heads * queries * keys * head_dim  # two products, causal: half of them
        length = keys / (keys + constants.half_length)
        # A part-filled tile counts as its part: rounding up would make 129 queries faster than 128.
        tiles = batch * heads * queries / constants.tile_rows
        return flops / (rate * length * np.minimum(1.0, tiles / tiles_when_full))

    def backward(*sizes: Array) -> Array:
        return body(*sizes) * BACKWARD_PRODUCTS / constants.backward_fraction + launch

    return {"attention_forward_s": lambda *sizes: body(*sizes) + launch, "attention_backward_s": backward}


def _elementwise(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s * profile.elementwise.bandwidth_fraction
    launch = profile.elementwise.launch_s
    return {"elementwise_s": lambda traffic: traffic / bandwidth + launch * np.greater(traffic, 0.0)}
