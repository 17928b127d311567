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

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
GRADIENT_ACCUMULATOR_BYTES = 8  # the weight gradient is read and written in fp32
# A fused backward runs five products of which two are the forward's (Dao 2023).
BACKWARD_PRODUCTS = 2.5


def bind(gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, dtype: str) -> dict[str, Callable[..., Any]]:
    """Numpy bodies, by operator name, of every compute operator on this device; all return seconds."""
    return {
        **_gemm(gpu, profile, dtype),
        **_attention(gpu, profile),
        **_elementwise(gpu, profile),
        "launch_s": lambda kernels: kernels * (0.0 if recipe.cuda_graphs else profile.host_launch_s),
    }


def _gemm(gpu: GpuSpec, profile: HardwareProfile, dtype: str) -> dict[str, Callable[..., Any]]:
    constants = profile.gemm[dtype]
    rate = gpu.peak_flops[dtype] * constants.peak_fraction * profile.sustained_fraction
    bandwidth = gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    element = ELEMENT_BYTES[dtype]

    def seconds(rows: Array, columns: Array, inner: Array, output_bytes: int) -> Array:
        flops = 2.0 * rows * columns * inner
        traffic = element * (rows * inner + inner * columns) + output_bytes * rows * columns
        return np.maximum(flops / rate, traffic / bandwidth) + constants.launch_s

    return {
        "gemm_forward_s": lambda rows, columns, inner: seconds(rows, columns, inner, element),
        "gemm_input_grad_s": lambda rows, columns, inner: seconds(rows, columns, inner, element),
        "gemm_weight_grad_s": lambda rows, columns, inner: seconds(rows, columns, inner, GRADIENT_ACCUMULATOR_BYTES),
    }


def _attention(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    constants = profile.attention
    tiles_when_full = constants.tiles_per_multiprocessor * gpu.streaming_multiprocessors
    peak = gpu.peak_flops["bf16"] * constants.peak_fraction * profile.sustained_fraction
    launch = profile.gemm["bf16"].launch_s

    def forward(batch: Array, heads: Array, queries: Array, keys: Array, head_dim: Array) -> Array:
        flops = 2.0 * batch * heads * queries * keys * head_dim  # two products, causal: half of them
        length = keys / (keys + constants.half_length)
        tiles = batch * heads * np.ceil(queries / constants.tile_rows)
        return flops / (peak * length * np.minimum(1.0, tiles / tiles_when_full)) + launch

    def backward(batch: Array, heads: Array, queries: Array, keys: Array, head_dim: Array) -> Array:
        ahead = forward(batch, heads, queries, keys, head_dim) - launch
        return ahead * BACKWARD_PRODUCTS / constants.backward_fraction + launch

    return {"attention_forward_s": forward, "attention_backward_s": backward}


def _elementwise(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s * profile.elementwise.bandwidth_fraction
    launch = profile.elementwise.launch_s
    return {"elementwise_s": lambda traffic: traffic / bandwidth + launch * np.greater(traffic, 0.0)}
