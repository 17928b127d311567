"""Random legal plans that a launcher can express: layouts of the search's own space, stages drawn within the rules."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, islice
from typing import Any

import numpy as np

from planner.document import Configuration, Offload, Parallelism
from planner.export.choice import EVERY_LAYER, Choice, stages_of
from planner.launchers import illegalities, refusals
from planner.request import PlanRequest, build_request
from planner.rules import FLEXIBLE, RULES
from planner.space import (
    CONTEXT_TYPES,
    RANK_ORDERS,
    RECOMPUTE_SETS,
    SCHEDULES,
    ZERO_MODES,
    Columns,
    chunk_layers,
    context_type,
    group_size,
    layouts,
    meshes,
    take,
)

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TRIES = 40
EVEN = tuple(rule.launcher for rule in RULES if rule.id.endswith("splits-layers-evenly"))
# Jobs that between them have long sequences, experts, latent attention, leading dense layers, windows, tied embeddings,
# odd GPU counts and fp8.
JOBS: tuple[dict[str, Any], ...] = (
    {"model": "gpt2", "gpus": 8, "seq_len": "1k", "global_batch": 64},
    {"model": "llama3-8b", "gpus": 16, "seq_len": "8k", "global_batch": 16},
    {"model": "deepseek-v2-lite", "gpus": 8, "seq_len": "4k", "global_batch": 32},
    {"model": "llama3-70b", "gpus": 12, "global_batch": 48},
    {"model": "qwen3-30b-a3b", "gpus": 16, "seq_len": "4k", "global_batch": 32},
    {"model": "llama3-8b", "gpus": 8, "seq_len": "32k", "global_batch": 16, "overrides": ["model.max_seq_len=32768"]},
    {"model": "llama3-70b", "gpus": 64, "global_batch": 64, "overrides": ["workload.precision=fp8"]},
    {"model": "mixtral-8x7b", "gpus": 32, "seq_len": "16k", "global_batch": 32},
    {"model": "llama3-8b", "gpus": 8, "global_batch": 16, "overrides": ["workload.optimizer=precision-aware"]},
    {"model": "llama3-8b", "gpus": 8, "global_batch": 16, "overrides": ["workload.optimizer=adamw-8bit"]},
    {"model": "llama3.2-1b", "gpus": 7, "seq_len": "2k", "global_batch": 42},
)


def configurations(launcher: str, count: int, seed: int = 0) -> Iterator[Configuration]:
    """So many different legal plans that a launcher can express, the same for the same seed, from all jobs in turn."""
    random = np.random.default_rng(seed)
    seen: set[str] = set()
    for job in cycle(range(len(JOBS))):
        if len(seen) == count:
            return
        drawn = _drawn(launcher, job, random) if len(_space(launcher, job)[1]["pp"]) else None
        if drawn is not None and drawn.model_dump_json() not in seen:
            seen.add(drawn.model_dump_json())
            yield drawn


@cache
def _space(launcher: str, job: int) -> tuple[PlanRequest, Columns]:
    """A job and all its layouts for a launcher."""
    flags = dict(JOBS[job])
    request = build_request(**flags, mem="80GB", target=launcher)
    request = request.replaced(schedules=(*request.schedules, FLEXIBLE))
    return request, layouts(request, meshes(request))


def _drawn(launcher: str, job: int, random: np.random.Generator) -> Configuration | None:
    """A plan of a job with a random layout and random choices; None where no choice that was tried is expressible.

    Layouts are drawn by mesh first: a mesh with few micro-batches has far fewer layouts than one with many.
    """
    request, columns = _space(launcher, job)
    names = ("tp", "cp", "pp", "schedule", "ep", "dp_replicate", "rank_order", "group_size")
    mesh = random.choice(len(columns["pp"]))
    values = {name: random.choice(np.unique(columns[name])) for name in names}
    for name in random.permutation(names):
        same = columns[name] == values[name]
        if np.any(same):
            columns = take(columns, same)
    row = {name: int(column[mesh % len(column)]) for name, column in columns.items()}
    layers = _layers(request, row, random, launcher not in EVEN)
    choices = islice(_choices(request, row, random), TRIES)
    tries = (_configuration(request, row, layers, choice) for choice in choices)
    return next((each for each in tries if not illegalities(each) and not refusals(each, launcher)), None)


def _layers(request: PlanRequest, row: dict[str, int], random: np.random.Generator, uneven_too: bool) -> list[int]:
    """Layers of the chunks, in order: as even as they go, or anyhow where `uneven_too`."""
    chunks = row["pp"] * row["vpp"]
    layers = request.model.layers
    if layers % chunks == 0 and (not uneven_too or random.random() < 0.6):
        return [layers // chunks] * chunks
    if chunks > layers:  # ends may hold the embedding and the head alone
        ends = [0] + [1] * layers + [0]
        return ends[:chunks] if chunks < len(ends) else ends
    cuts = np.sort(random.choice(np.arange(1, layers), chunks - 1, replace=False))
    uneven = np.diff([0, *cuts, layers])
    even = chunk_layers(layers, chunks, np.arange(chunks), False)
    return [int(each) for each in (uneven if random.random() < 0.5 else even)]


def _choices(request: PlanRequest, row: dict[str, int], random: np.random.Generator) -> Iterator[Choice]:
    """Choices in random order, plain ones among them so that one of them fits most layouts."""
    zero_modes = range(len(ZERO_MODES["zero_stage"]))
    useful = [mode for mode in zero_modes if (row["dp_shard"] == row["dp"] if mode == 0 else row["dp"] * row["cp"] > 1)]
    shares = [
        Offload(),
        Offload(weights=1.0, gradients=1.0, optimizer=1.0),
        *(_random_offload(random) for _ in range(4)),
    ]
    found = [
        (mode, recompute, offload)
        for mode in useful
        for recompute in _recomputes(request, random)
        for offload in shares
    ]
    for index in random.permutation(len(found)):
        mode, (modules, count), offload = found[index]
        stage, reshard = (int(ZERO_MODES[name][mode]) for name in ("zero_stage", "reshard"))
        yield Choice(stage, bool(reshard), modules, count, offload)


def _recomputes(request: PlanRequest, random: np.random.Generator) -> Sequence[tuple[tuple[Any, ...], int]]:
    """Sets of modules that the model has, and full recompute of some or all layers of a chunk."""
    lacking = {"mla_up_proj": request.model.mla is None, "moe": request.model.moe is None}
    lacking["shared_experts"] = request.model.moe is None or not request.model.moe.shared_experts
    sets = [names for names in RECOMPUTE_SETS if not any(lacking.get(name, False) for name in names)]
    return [*((names, EVERY_LAYER) for names in sets), (("full",), int(random.integers(1, 6)))]


def _random_offload(random: np.random.Generator) -> Offload:
    """A share of each kind, most of them none; gradients go with the optimizer half of the time."""
    weights, optimizer, activations = (float(random.choice(SHARES)) * (random.random() < 0.5) for _ in range(3))
    gradients = optimizer if random.random() < 0.5 else 0.0
    return Offload(weights=weights, gradients=gradients, optimizer=optimizer, activations=activations)


def _configuration(request: PlanRequest, row: dict[str, int], layers: list[int], choice: Choice) -> Configuration:
    degrees = ("tp", "pp", "vpp", "cp", "cp_heads", "ep", "etp", "dp", "dp_shard", "dp_replicate", "slices")
    schedule = SCHEDULES[row["schedule"]]
    return Configuration(
        model=request.model,
        cluster=request.cluster,
        workload=request.workload,
        recipe=request.recipe,
        parallelism=Parallelism(
            **{name: row[name] for name in (*degrees, "micro_batch_size", "num_microbatches")},
            sequence_parallel=bool(row["sequence_parallel"]),
            cp_type=CONTEXT_TYPES[int(context_type(row))],
            rank_order=RANK_ORDERS[row["rank_order"]],
            schedule=schedule,
            group_size=int(group_size(row)),
            gpus_used=row["world"],
            gpus_idle=request.cluster.gpus - row["world"],
        ),
        stages=stages_of(schedule, row["pp"], row["vpp"], layers, choice),
    )
