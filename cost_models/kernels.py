"""How a compute operator becomes seconds: rooflines whose rates follow measured tables where a device has them.

A roofline's constants say what a long run reaches; a table (specs/kernel_tables.py) says how the rate depends on the
shape: few rows, short inner sizes and few heads leave multiprocessors idle. Both are shares of a device's peaks, so
the seconds are the roofline's with another share for every shape, continuous at the border of what was measured and
never less for more work. Constants, tables and their sources are in data/profiles.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interpolation import LogLattice
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.kernel_tables import (
    AttentionPass,
    AttentionTable,
    ElementwiseKind,
    ElementwiseTable,
    GemmLayout,
    KernelTables,
    ShareLattice,
)
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.vocabulary import ELEMENTWISE_KINDS, elementwise_name

__all__ = ["bind", "coverage"]

Array = NDArray[np.float64]
Body = Callable[..., Any]

OPERAND_BYTES = {"bf16": 2, "fp8": 1}
OUTPUT_BYTES = 2  # products of fp8 operands come out in bf16 too
# A grouped product works on tiles of tokens of one expert; the last of each is part-filled, half on average.
GROUP_TILE_TOKENS = 128
# Together the groups fill a device; what each loses to its few rows is counted by group.
MANY_ROWS = 32768.0
# A fused backward runs five products of which two are the forward's (Dao 2023, FlashAttention-2).
BACKWARD_PRODUCTS = 2.5
GEMM_LAYOUTS: tuple[GemmLayout, ...] = ("forward", "input_grad", "weight_grad")
ATTENTION_PASSES: tuple[AttentionPass, ...] = ("forward", "backward")
# What is known of a layer beyond its operators: two passes, and what one of them takes more in two parts.
PASSES_BEYOND = ("forward", "backward", "split")
NO_TABLES = KernelTables(gpus=())


def bind(
    gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, dtype: str, nodes: int = 1
) -> dict[str, Body]:
    """Numpy bodies, by operator name, of every compute operator on this device in a job of `nodes`; seconds."""
    sustained = profile.sustained_on(nodes) * recipe.tuned_rate
    launch_s = 0.0 if recipe.cuda_graphs else profile.host_launch_s * recipe.launch_factor
    return {
        **_gemm(gpu, profile, recipe, dtype, sustained),
        **_attention(gpu, profile, recipe, sustained),
        **_elementwise(gpu, profile),
        "launch_s": lambda kernels: kernels * launch_s,
        **_beyond(profile),
        "hop_end_s": lambda tokens: (profile.hop_end_s or 0.0) + (profile.hop_end_token_s or 0.0) * tokens,
    }


def coverage(gpu: GpuSpec, profile: HardwareProfile, dtype: str) -> dict[str, Body]:
    """For every operator of `bind`, which takes the same sizes: 1.0 where its seconds rest on measurements, else 0.0.

    1.0 between measured shapes of an operator that was measured on this GPU; 0.0 beyond them, for passes whose rate was
    carried over from another GPU, and for whatever rests on constants that no run on it measured.
    """
    tables = profile.tables if profile.tables and gpu.name in profile.tables.gpus else NO_TABLES
    product, attention = tables.gemm.get(dtype), tables.attention
    launched = profile.gpu == gpu.name and profile.is_measured("launch")
    bodies: dict[str, Body] = {"launch_s": _everywhere if launched else _nowhere}
    alone, shared = (_everywhere if of_layer and profile.gpu == gpu.name else _nowhere for of_layer in _in_run(profile))
    bodies |= {f"beyond_{name}_s": _by_ranks(alone, shared) for name in PASSES_BEYOND}
    bodies["hop_end_s"] = _everywhere if profile.hop_end_s is not None and profile.gpu == gpu.name else _nowhere
    for kind in ELEMENTWISE_KINDS:
        moved = _moved(tables, kind)
        bodies[elementwise_name(kind)] = _within(moved) if moved else _nowhere
    for layout in GEMM_LAYOUTS:
        own = product and product.by_layout.get(layout, product)
        bodies[f"gemm_{layout}_s"] = _within(own) if own and product and layout in product.measured else _nowhere
        groups = tables.grouped_gemm.get(layout)
        of_group = _within(groups) if groups and groups.measured else _nowhere
        bodies[f"grouped_gemm_{layout}_s"] = _group_coverage(of_group, layout)
    for part in ATTENTION_PASSES:
        measured = attention is not None and part in attention.measured
        bodies[f"attention_{part}_s"] = _attention_coverage(attention) if attention and measured else _nowhere
    return bodies


def _beyond(profile: HardwareProfile) -> dict[str, Body]:
    """What layers take beyond their operators; nothing where no run has shown it."""

    def taken(layer_s: float, token_s: float) -> Body:
        return lambda layers, tokens, _: layers * (layer_s + token_s * tokens)

    def of_pass(name: str) -> Body:
        found = [each.model_dump() if each else {} for each in _in_run(profile)]
        return _by_ranks(*(taken(each.get(f"{name}_s", 0.0), each.get(f"{name}_token_s", 0.0)) for each in found))

    return {f"beyond_{name}_s": of_pass(name) for name in PASSES_BEYOND}


def _in_run(profile: HardwareProfile) -> tuple[BeyondOperators | None, BeyondOperators | None]:
    """What a run has shown of a layer that a rank has for itself, and of one that ranks share."""
    return profile.beyond, profile.beyond_shared or profile.beyond


def _by_ranks(alone: Body, shared: Body) -> Body:
    """One body for layers that a rank has for itself and those that ranks share."""
    return lambda layers, tokens, ranks: np.where(
        np.asarray(ranks) > 1, shared(layers, tokens, ranks), alone(layers, tokens, ranks)
    )


def _gemm(
    gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, dtype: str, sustained: float
) -> dict[str, Body]:
    constants = profile.gemm[dtype]
    rate = gpu.peak_flops[dtype] * constants.peak_fraction * sustained
    bandwidth = gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    operand = OPERAND_BYTES[dtype]
    # The sum of weight gradients is read and written; where it is kept apart (exchange.py) a plain product is.
    accumulator = 2 * recipe.gradient_bytes if recipe.fused_gradient_accumulation else OUTPUT_BYTES
    shape = {layout: _gemm_shape(profile, dtype, layout) for layout in GEMM_LAYOUTS}
    of_group = {layout: _group_shape(profile, layout) for layout in GEMM_LAYOUTS}

    def roofline(multiplied: Array, share: Array, traffic: Array) -> Array:
        seconds: Array = np.maximum(2.0 * multiplied / (rate * share), traffic / bandwidth) + constants.launch_s
        return seconds

    def product(layout: GemmLayout, output_bytes: float) -> Body:
        def seconds(rows: Array, columns: Array, inner: Array) -> Array:
            traffic = operand * (rows * inner + inner * columns) + output_bytes * rows * columns
            return roofline(1.0 * rows * columns * inner, shape[layout](rows, columns, inner), traffic)

        return seconds

    def grouped(layout: GemmLayout) -> Body:
        def seconds(rows: Array, columns: Array, inner: Array, groups: Array) -> Array:
            share = shape[layout](MANY_ROWS, columns, inner) * of_group[layout](rows / groups)
            traffic = operand * (rows * inner + groups * inner * columns) + OUTPUT_BYTES * rows * columns
            return roofline(1.0 * rows * columns * inner, share, traffic)

        return seconds

    def grouped_weight_grad(rows: Array, columns: Array, inner: Array, groups: Array) -> Array:
        share = shape["weight_grad"](rows, columns, MANY_ROWS) * of_group["weight_grad"](inner / groups)
        traffic = operand * (rows * inner + inner * columns) + accumulator * groups * rows * columns
        return roofline(1.0 * rows * columns * inner, share, traffic)

    return {
        "gemm_forward_s": product("forward", OUTPUT_BYTES),
        "gemm_input_grad_s": product("input_grad", OUTPUT_BYTES),
        "gemm_weight_grad_s": product("weight_grad", accumulator),
        "grouped_gemm_forward_s": grouped("forward"),
        "grouped_gemm_input_grad_s": grouped("input_grad"),
        "grouped_gemm_weight_grad_s": grouped_weight_grad,
    }


def _gemm_shape(profile: HardwareProfile, dtype: str, layout: GemmLayout) -> Body:
    """What a product of (rows, columns, inner) reaches of the constants' rate, 1 without a table."""
    table = profile.tables.gemm.get(dtype) if profile.tables else None
    if table is None:
        return lambda rows, columns, inner: 1.0
    own = table.by_layout.get(layout)
    lattice: ShareLattice = table if own is None else own
    share = LogLattice(tuple(lattice.axes.values()), lattice.shares)
    scale = (table.layouts[layout] if own is None else 1.0) / table.reference_share
    return lambda rows, columns, inner: scale * share(rows, columns, inner)


def _group_shape(profile: HardwareProfile, layout: GemmLayout) -> Body:
    """What groups of some rows each reach of one product's rate; without a table each fills half a tile in vain."""
    tables = profile.tables.grouped_gemm if profile.tables else {}
    table = tables.get(layout)
    if table is None:
        return lambda rows: rows / (rows + GROUP_TILE_TOKENS / 2.0)
    return LogLattice(tuple(table.axes.values()), table.shares)


def _attention(gpu: GpuSpec, profile: HardwareProfile, recipe: FrameworkRecipe, sustained: float) -> dict[str, Body]:
    # Attention stays in bf16 when the matrix products are fp8.
    rate = gpu.peak_flops["bf16"] * profile.attention.peak_fraction * sustained
    rate *= profile.attention.kernels.get(recipe.attention_kernel, 1.0)
    launch = profile.gemm["bf16"].launch_s
    table = profile.tables.attention if profile.tables else None
    forward, backward = _measured_attention(table) if table else _attention_roofline(gpu, profile)

    def body(share: Body, products: float) -> Body:
        def seconds(batch: Array, heads: Array, queries: Array, keys: Array, head_dim: Array) -> Array:
            flops = products * batch * heads * queries * keys * head_dim
            taken: Array = flops / (rate * share(batch * heads * queries, keys, head_dim)) + launch
            return taken

        return seconds

    # Two products, causal: half of them.
    return {
        "attention_forward_s": body(forward, 2.0),
        "attention_backward_s": body(backward, 2.0 * BACKWARD_PRODUCTS),
    }


def _measured_attention(table: AttentionTable) -> tuple[Body, Body]:
    """Shares of the constants' rate that forward and backward reach, by query rows of all heads, keys and head size."""
    axes = tuple(table.axes.values())
    forward, backward = (
        LogLattice(axes, np.asarray(shares) / table.reference_share) for shares in (table.shares, table.backward_shares)
    )
    return forward, backward


def _attention_roofline(gpu: GpuSpec, profile: HardwareProfile) -> tuple[Body, Body]:
    constants = profile.attention
    tiles_when_full = constants.tiles_per_multiprocessor * gpu.streaming_multiprocessors

    def forward(rows: Array, keys: Array, head_dim: Array) -> Array:
        # A part-filled tile counts as its part: rounding up would make 129 queries faster than 128.
        occupied = np.minimum(1.0, rows / constants.tile_rows / tiles_when_full)
        return keys / (keys + constants.half_length) * occupied

    return forward, lambda *sizes: constants.backward_fraction * forward(*sizes)


def _elementwise(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Body]:
    """Seconds of every kind of memory-bound operator by the bytes it is counted with, 0 for none."""
    bandwidth, tables = gpu.memory_bandwidth_bytes_per_s, profile.tables or NO_TABLES
    reached, launch = bandwidth * profile.elementwise.bandwidth_fraction, profile.elementwise.launch_s

    def roofline(traffic: Any) -> Any:
        return traffic / reached + launch * np.greater(traffic, 0.0)

    def measured(table: ElementwiseTable) -> Body:
        (sizes,) = table.axes.values()
        share = LogLattice((sizes,), table.shares)

        def seconds(traffic: Any) -> Any:
            counted = np.maximum(traffic, sizes[0])  # fewer bytes than the fewest measured take as long as these
            return np.greater(traffic, 0.0) * counted / (bandwidth * share(counted))

        return seconds

    found = {elementwise_name(kind): _moved(tables, kind) for kind in ELEMENTWISE_KINDS}
    return {name: roofline if table is None else measured(table) for name, table in found.items()}


def _moved(tables: KernelTables, kind: ElementwiseKind) -> ElementwiseTable | None:
    """The table of a kind of memory-bound operator, else the one of all others."""
    return tables.elementwise.get(kind) or tables.elementwise.get("other")


def _everywhere(*sizes: Any) -> Any:
    return 1.0 + _nowhere(*sizes)


def _nowhere(*sizes: Any) -> Any:
    return 0.0 * sum(sizes)


def _within(table: ShareLattice) -> Body:
    """1.0 for sizes between the first and the last node of every axis, else 0.0."""
    ends = [(axis[0], axis[-1]) for axis in table.axes.values()]
    return lambda *sizes: prod(_between(size, *end) for size, end in zip(sizes, ends, strict=True))


def _between(size: Any, first: float, last: float) -> Any:
    return 1.0 * (np.greater_equal(size, first) & np.less_equal(size, last))


def _group_coverage(rows_of_group: Body, layout: GemmLayout) -> Body:
    """Coverage of a grouped product by the rows of one group: of its first size, or its inner one (weight gradient)."""
    if layout == "weight_grad":
        return lambda rows, columns, inner, groups: rows_of_group(inner / groups) + _nowhere(rows, columns)
    return lambda rows, columns, inner, groups: rows_of_group(rows / groups) + _nowhere(columns, inner)


def _attention_coverage(table: AttentionTable) -> Body:
    within = table.within

    def inside(batch: Any, heads: Any, queries: Any, keys: Any, head_dim: Any) -> Any:
        streams = batch * heads * queries / keys
        sizes = {"streams": streams, "keys": keys, "head_dim": head_dim}
        return prod(_between(size, *within[name]) for name, size in sizes.items())  # type: ignore[index]

    return inside
