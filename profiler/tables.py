"""Measurements -> the tables of a profile: shares of the device's peaks on lattices, and how each was measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.kernels import BACKWARD_PRODUCTS
from cost_models.specs.kernel_tables import ElementwiseKind
from cost_models.surface import fitted
from profiler.candidates import COLLECTIVES, GEMMS, HOST_COPIES, LINKS, Counted
from profiler.choice import left_out_errors
from profiler.points import Measured

__all__ = ["Peaks", "measured_table", "peaks", "tables"]

Array = NDArray[np.float64]
# Nodes of an axis: of one size, and of each of three.
MOST_NODES, MOST_NODES_OF_THREE = 24, 7
# Measurements repeat to a few per cent: a surface that bends more is noise. Less than cross-validation found for shapes
# of every kind, for here the shapes are those that will be asked for.
SMOOTHNESS = 1e-4
# What stands for every kind without measurements of its own.
OF_COPY: Mapping[str, ElementwiseKind] = {"memory_copy": "other"}


@dataclass(frozen=True)
class Peaks:
    """The fastest that was measured of a device: what shares are shares of."""

    flops: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    link_latency_s: float
    launch_s: float


def peaks(measured: Sequence[Measured], known: Mapping[str, float] | None = None) -> Peaks:
    """The fastest product, copy and gather of all; `known` are peaks of data sheets, which replace flops and memory."""
    known = known or {}
    flops = max(_multiplied(one) / one.seconds for one in measured if one.point.operator in GEMMS)
    moved = max(one.point.sizes[0] / one.seconds for one in measured if one.point.operator == "memory_copy")
    links = [one for one in measured if one.point.operator in COLLECTIVES]
    return Peaks(
        flops=known.get("flops", flops * 1.0001),
        memory_bytes_per_s=known.get("memory_bytes_per_s", moved),
        link_bytes_per_s=max((_passed(one) / one.seconds for one in links), default=moved) * 1.0001,
        link_latency_s=min((one.seconds for one in measured if one.point.operator == "send"), default=0.0),
        launch_s=min((one.seconds for one in measured if one.point.operator == "launch"), default=0.0),
    )


def tables(measured: Sequence[Measured], peak: Peaks, counted: Counted, device: str, kind: str) -> dict[str, Any]:
    """Fields of KernelTables; `counted` is what memory-bound operators are counted with, `kind` that of the links."""
    by_operator: dict[str, list[Measured]] = {}
    for one in measured:
        by_operator.setdefault(one.point.operator, []).append(one)
    found: dict[str, Any] = {"gpus": [device]}
    if all(name in by_operator for name in GEMMS):
        found["gemm"] = {"bf16": _products(by_operator, peak)}
    if "attention_forward" in by_operator and "attention_backward" in by_operator:
        found["attention"] = _attention(by_operator, peak)
    moved = [name for name in dict.fromkeys(name for name, _ in counted) if name in by_operator]
    found["elementwise"] = {OF_COPY.get(name, name): _elementwise(by_operator[name], counted, peak) for name in moved}
    links = {name: _link(by_operator[name], peak) for name in LINKS if name in by_operator}
    if links:
        found["collectives"] = {
            "kind": kind,
            "line_rate_bytes_per_s": peak.link_bytes_per_s,
            "reference_share": 1.0,
            "operations": links,
        }
    copies = {name: by_operator[name] for name in HOST_COPIES if name in by_operator}
    if copies:
        found["copies"] = _copies(copies)
    return found


def measured_table(measured: Iterable[Measured]) -> dict[str, Any] | None:
    """The fields of MeasuredTable for one part of a profile, None where nothing of it was measured."""
    rows = list(measured)
    if not rows:
        return None
    errors = [error for name in {one.point.operator for one in rows} for error in _errors(rows, name)]
    return {
        "points": len(rows),
        "repetitions": max(1, round(median(one.repetitions for one in rows))),
        "spread": median(one.spread for one in rows),
        "largest_spread": max(one.spread for one in rows),
        "outliers_dropped": sum(one.outliers + one.interrupted for one in rows),
        "throttled": sum(one.repetitions for one in rows if one.throttled),
        "fit_error": float(np.mean(errors)) if errors else None,
    }


def _errors(rows: Sequence[Measured], operator: str) -> list[float]:
    of_operator = [one for one in rows if one.point.operator == operator]
    return left_out_errors(of_operator).tolist() if len(of_operator) > 3 else []


def _multiplied(one: Measured) -> float:
    rows, columns, inner = one.point.sizes
    return 2.0 * rows * columns * inner


def _passed(one: Measured) -> float:
    size, ranks = one.point.sizes
    return size if one.point.operator == "send" else size * (ranks - 1) / ranks


def _products(by_operator: Mapping[str, Sequence[Measured]], peak: Peaks) -> dict[str, Any]:
    lattices = {name: _product(by_operator[name], peak) for name in GEMMS}
    return {
        **lattices["gemm_forward"],
        "reference_share": 1.0,
        "layouts": {"forward": 1.0, "input_grad": 1.0, "weight_grad": 1.0},
        "by_layout": {name.removeprefix("gemm_"): lattices[name] for name in GEMMS[1:]},
        "measured": [name.removeprefix("gemm_") for name in GEMMS],
    }


def _product(measured: Sequence[Measured], peak: Peaks) -> dict[str, Any]:
    shares = [_multiplied(one) / (peak.flops * one.seconds) for one in measured]
    sizes = [one.point.sizes for one in measured]
    return _lattice(("rows", "columns", "inner"), sizes, shares, MOST_NODES_OF_THREE)


def _attention(by_operator: Mapping[str, Sequence[Measured]], peak: Peaks) -> dict[str, Any]:
    """Both passes on one lattice; where they were measured at different shapes, the nodes are those of the forward."""
    found: dict[str, Any] = {}
    names = ("rows", "keys", "head_dim")
    forward = by_operator["attention_forward"]
    axes = [_nodes([_rows_keys_width(one)[index] for one in forward], MOST_NODES_OF_THREE) for index in range(3)]
    for operator, products in (("attention_forward", 2.0), ("attention_backward", 2.0 * BACKWARD_PRODUCTS)):
        measured = by_operator[operator]
        sizes = [_rows_keys_width(one) for one in measured]
        shares = [
            products * rows * keys * width / (peak.flops * one.seconds)
            for one, (rows, keys, width) in zip(measured, sizes, strict=True)
        ]
        found[operator] = _surface(axes, sizes, shares)
    streams = [one.point.sizes[0] * one.point.sizes[1] for one in forward]
    ends = {"streams": streams, "keys": [one.point.sizes[3] for one in forward]}
    ends["head_dim"] = [one.point.sizes[4] for one in forward]
    return {
        "axes": {name: axis.tolist() for name, axis in zip(names, axes, strict=True)},
        "shares": found["attention_forward"],
        "backward_shares": found["attention_backward"],
        "reference_share": 1.0,
        "within": {name: [float(min(values)), float(max(values))] for name, values in ends.items()},
        "measured": ["forward", "backward"],
    }


def _rows_keys_width(one: Measured) -> tuple[int, int, int]:
    batch, heads, queries, keys, width = one.point.sizes
    return batch * heads * queries, keys, width


def _elementwise(measured: Sequence[Measured], counted: Counted, peak: Peaks) -> dict[str, Any]:
    sizes = [(counted[one.point.operator, one.point.detail] * one.point.sizes[0],) for one in measured]
    seconds = _rising([size for (size,) in sizes], [one.seconds for one in measured])
    shares = [size / (peak.memory_bytes_per_s * taken) for (size,), taken in zip(sizes, seconds, strict=True)]
    return _lattice(
        ("bytes",), sizes, shares, MOST_NODES, most=float("inf")
    )  # caches and fusion move less than counted


def _link(measured: Sequence[Measured], peak: Peaks) -> dict[str, Any]:
    sizes, shares = [], []
    for ranks in sorted({one.point.sizes[1] for one in measured}):
        of_group = [one for one in measured if one.point.sizes[1] == ranks]
        seconds = _rising([one.point.sizes[0] for one in of_group], [one.seconds for one in of_group])
        sizes += [(ranks, one.point.sizes[0]) for one in of_group]
        shares += [_passed(one) / (peak.link_bytes_per_s * taken) for one, taken in zip(of_group, seconds, strict=True)]
    return _lattice(("ranks", "bytes"), sizes, shares, MOST_NODES)


def _copies(by_direction: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """Pinned copies over the fastest of all."""
    rate = max(one.point.sizes[0] / one.seconds for some in by_direction.values() for one in some) * 1.0001
    directions = {}
    for name, measured in by_direction.items():
        sizes = [(float(one.point.sizes[0]),) for one in measured]
        seconds = _rising([size for (size,) in sizes], [one.seconds for one in measured])
        shares = [size / (rate * taken) for (size,), taken in zip(sizes, seconds, strict=True)]
        directions[name] = _lattice(("bytes",), sizes, shares, MOST_NODES)
    return {"line_rate_bytes_per_s": rate, "directions": directions}


def _rising(sizes: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """The seconds, each at most those of any larger size: what disturbs a measurement only ever makes it longer."""
    return [min(taken for other, taken in zip(sizes, seconds, strict=True) if other >= size) for size in sizes]


def _lattice(
    names: Sequence[str],
    sizes: Sequence[tuple[float, ...]],
    shares: Sequence[float],
    nodes: int,
    most: float = 1.0,
) -> dict[str, Any]:
    axes = [_nodes([size[index] for size in sizes], nodes) for index in range(len(names))]
    return {
        "axes": {name: axis.tolist() for name, axis in zip(names, axes, strict=True)},
        "shares": _surface(axes, sizes, shares, most),
    }


def _surface(
    axes: Sequence[Array], sizes: Sequence[tuple[float, ...]], shares: Sequence[float], most: float = 1.0
) -> list[float]:
    """Shares at the nodes, none above `most`, which rounding could reach."""
    columns = [np.array([size[index] for size in sizes], dtype=np.float64) for index in range(len(axes))]
    values = fitted(axes, columns, np.asarray(shares), np.ones(len(shares)), SMOOTHNESS)
    return [float(min(value, most)) for value in values.ravel()]


def _nodes(values: Iterable[float], most: int) -> Array:
    """Nodes of an axis: every size that was measured, or some of them that lie about evenly, both ends included."""
    every = np.unique(np.asarray(list(values), dtype=np.float64))
    if len(every) <= most:
        return every
    wanted = np.geomspace(every[0], every[-1], most)
    nearest = [int(np.abs(np.log(every / each)).argmin()) for each in wanted]
    return every[sorted(set(nearest))]
