"""Tables of fused causal attention: forward by query rows, length and head size, backward by how full the device is."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from cost_models import surface
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.profile import HardwareProfile
from profiles import sources
from profiles.sources import Array, Row, System

TILE_ROWS = 128
ROWS = 2.0 ** np.arange(12, 24)
LENGTHS = 2.0 ** np.arange(10, 15)
# Nodes below the measured ones: fewer rows leave multiprocessors idle, shorter sequences follow the constants' form.
FEWEST_ROWS, SHORTEST = 128.0, 128.0
LATENT_HEAD_DIM = 160.0  # the mean of 192 for queries and keys and 128 for values: as the operator counts them
# FlashAttention-2 forward and backward on A100, head size 64 over 128 at 2k to 16k (BSD-3): 140/155 to 171/189.
SMALL_HEADS = 0.905
# A kernel above the peak was mistimed, one that never reaches this share is not what training runs.
SLOWEST_KERNEL = 0.3
# The isolated measurements and the multiprocessors of the GPUs whose backward was measured, at one length.
NEAREST = {"a100_pcie": ("a100_sxm", 108), "b200_bf16_ceperm": ("b200_sxm", 148)}
LENGTH = 4096.0
SURFACE_AXES = (ROWS, LENGTHS)


def attention_table(folder: Path, system: System, gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Any]:
    """Return the fields of an AttentionTable."""
    points = best_points(folder, system.name)
    planes = {head_dim: plane(*measured) for head_dim, measured in points.items()}
    planes.setdefault(64.0, SMALL_HEADS * planes[128.0])
    planes.setdefault(256.0, planes[128.0])
    head_dims = np.array(sorted(planes))
    forward = np.stack([planes[head_dim] for head_dim in head_dims], axis=-1)
    axes, forward = _extended((*SURFACE_AXES, head_dims), forward, profile.attention.half_length)
    forward = surface.monotone(axes, forward)
    waves = axes[0] / TILE_ROWS / gpu.streaming_multiprocessors
    scale = 1.0 if system.trained else profile.attention.backward_fraction
    ratios = [backward_ratio(folder, system, waves, d == LATENT_HEAD_DIM, scale) for d in head_dims]
    backward = surface.monotone(axes, forward * np.stack(ratios, axis=-1)[:, None, :])
    streams = np.concatenate([rows / lengths for (rows, lengths), _ in points.values()])
    return {
        "axes": {name: axis.tolist() for name, axis in zip(("rows", "keys", "head_dim"), axes, strict=True)},
        "shares": surface.rounded(forward),
        "backward_shares": surface.rounded(backward),
        "reference_share": profile.attention.peak_fraction,
        "within": {
            "streams": [float(streams.min()), float(streams.max())],
            "keys": [float(LENGTHS[0]), float(LENGTHS[-1])],
            "head_dim": [min(points), max(points)],
        },
        "measured": ["forward", "backward"] if system.trained else ["forward"],
    }


def plane(sizes: tuple[Array, Array], shares: Array) -> Array:
    """Return the shares of one head size at the nodes of SURFACE_AXES."""
    return surface.fitted(SURFACE_AXES, sizes, shares, np.ones(len(shares)))


def best_points(folder: Path, system: str) -> dict[float, tuple[tuple[Array, Array], Array]]:
    """Return ((query rows of all heads, lengths), share of the fastest kernel) of every shape, by head size.

    Kernels that were mistimed or that training would not run are left out, for a head size at a time; so are shapes
    with as many key heads as heads, where serving kernels spend up to a third of a short sequence on their cache.
    """
    kernels: dict[tuple[str, float], list[Row]] = defaultdict(list)
    grouped = sources.read(
        folder, sources.ATTENTION, lambda row: row["system"] == system and row["kv"] != row["num_heads"]
    )
    for row in grouped:
        kernels[row["backend"], float(row["head_dim"])].append(row)
    for row in sources.read(folder, sources.LATENT_ATTENTION, lambda row: row["system"] == system):
        if LENGTHS[0] <= float(row["isl"]) <= LENGTHS[-1]:
            kernels[row["backend"], LATENT_HEAD_DIM].append(row)
    best: dict[float, dict[tuple[str, ...], tuple[float, float, float]]] = defaultdict(dict)
    for (_, head_dim), rows in kernels.items():
        fastest = max(float(row["eff"]) for row in rows)
        if not SLOWEST_KERNEL < fastest < 1 or head_dim > 256:
            continue
        for row in rows:
            shape = tuple(row.get(name, "") for name in ("batch_size", "num_heads", "kv", "isl"))
            length = float(row["isl"])
            streams = float(row["batch_size"]) * float(row["num_heads"])
            share = max(float(row["eff"]), best[head_dim].get(shape, (0, 0, 0))[2])
            best[head_dim][shape] = (streams * length, length, share)
    tables = {head_dim: np.array(list(shapes.values())).T for head_dim, shapes in best.items()}
    return {head_dim: ((rows, lengths), shares) for head_dim, (rows, lengths, shares) in sorted(tables.items())}


def backward_ratio(folder: Path, system: System, waves: Array, latent: bool, scale: float) -> Array:
    """Return the backward's share over the forward's, by tiles for each multiprocessor.

    A backward also runs in parallel over keys, so few heads leave it less idle. `scale` is 1 on the GPU that was
    measured, else the ratio of a full device: only the shape is carried over then.
    """
    isolated, multiprocessors = NEAREST[system.nearest]
    head_dim = LATENT_HEAD_DIM if latent else 128.0
    forward = plane(*best_points(folder, isolated)[head_dim])
    points: dict[float, list[float]] = defaultdict(list)
    rows = sources.read(folder, sources.TRAINING_ATTENTION, lambda row: row["system"] == system.nearest)
    for row in rows:
        width = "192" if latent else "128"
        if row["op"] == "sdp_bwd" and row["qk_head_dim"] == width and float(row["seq_len"]) == LENGTH:
            query_rows = float(row["batch"]) * float(row["head_num"]) * LENGTH
            share = float(surface.at(SURFACE_AXES, forward, (np.array(query_rows), np.array(LENGTH))))
            # The causal half is not taken off there.
            points[query_rows / TILE_ROWS / multiprocessors].append(float(row["efficiency"]) / 2 / share)
    places = np.array(sorted(points))
    ratios = np.array([float(np.mean(points[place])) for place in places])
    full = ratios[-1] if scale != 1.0 else 1.0
    return np.exp(np.interp(np.log(waves), np.log(places), np.log(scale * ratios / full)))


def _extended(axes: tuple[Array, ...], shares: Array, half_length: float) -> tuple[tuple[Array, ...], Array]:
    """Return the lattice with a node before the first of rows and of lengths."""
    rows, lengths, head_dims = axes
    shorter = SHORTEST / (SHORTEST + half_length) * (lengths[0] + half_length) / lengths[0]
    shares = np.concatenate([shorter * shares[:, :1], shares], axis=1)
    idle = FEWEST_ROWS / rows[0]
    shares = np.concatenate([idle * shares[:1], shares])
    return (np.append(FEWEST_ROWS, rows), np.append(SHORTEST, lengths), head_dims), shares


def roofline_shares(sizes: tuple[Array, Array], gpu: GpuSpec, profile: HardwareProfile) -> Array:
    """Return the share that the profile's constants give every point."""
    rows, lengths = sizes
    constants = profile.attention
    full = constants.tiles_per_multiprocessor * gpu.streaming_multiprocessors
    occupied = np.minimum(1.0, rows / constants.tile_rows / full)
    return constants.peak_fraction * lengths / (lengths + constants.half_length) * occupied
