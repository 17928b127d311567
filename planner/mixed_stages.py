"""Pipelines on several kinds of GPUs at once: the stages of each kind follow each other, the faster kind holds more.

Stages of one kind have the same number of GPUs, all of which are in use; TP, DP, layers, sharding and recompute of each
stage are its own. A stage costs what the layout of its degrees costs on its kind, slowed by the nodes of the whole job;
every hop is priced at the outermost tier of the slower side. 1F1B of dense models, as in `planner.heterogeneous`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from cost_models.specs.cluster import ClusterSpec
from planner import space
from planner.document import PlanDocument
from planner.heterogeneous import MOST_STAGES, Outcome, best_of, stage_layouts, told
from planner.layout_costs import LayoutCosts
from planner.mesh_pipeline import MeshPlan, StageKind, fastest
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import divisors

__all__ = ["best_mixed_plan", "beside", "orders"]

# Kinds whose every order along the pipeline is looked at; more of them stand in the order of the file.
MOST_ORDERED = 3


def beside(document: PlanDocument, requests: Sequence[PlanRequest], seconds: float | None) -> PlanDocument:
    """The document of the best kind by itself, told of a pipeline on all kinds that beats it by the gap.

    After `seconds` of wall time the best so far is told; None is no limit.
    """
    alone = [name for name in (_why_alone(request) for request in requests) if name is not None]
    if alone:
        return _with(document, f"No pipeline on several kinds of GPUs was searched: {'; '.join(dict.fromkeys(alone))}.")
    known = document.heterogeneous
    beaten_s = min(document.predicted.step_time_s, known.step_time_s if known else inf)
    models = [CostModel(request) for request in requests]
    plan = best_mixed_plan(models, beaten_s * (1.0 - requests[0].gap), inf if seconds is None else seconds)
    if plan is None:
        return _with(document, "No pipeline with stages on all kinds of GPUs was found that beats the plan by the gap.")
    faster = "A pipeline with stages on all kinds of GPUs is faster: see heterogeneous. The plan is of one kind alone."
    return _with(document, faster).replaced(heterogeneous=told(plan, document.predicted.step_time_s))


def best_mixed_plan(models: Sequence[CostModel], cutoff_s: float = inf, seconds: float = inf) -> MeshPlan | None:
    """The fastest pipeline on all GPUs of all kinds under the cutoff, to within the gap; None where there is none."""
    return best_of(_spaces(models), cutoff_s, models[0].request.gap, seconds)


def orders(kinds: int) -> list[tuple[int, ...]]:
    """Orders of the kinds along the pipeline: all of few, else the one they are given in."""
    every = range(kinds)
    return list(itertools.permutations(every)) if kinds <= MOST_ORDERED else [tuple(every)]


def _why_alone(request: PlanRequest) -> str | None:
    """Why GPUs of this kind can have no neighbours of another; None where they can."""
    cluster = request.cluster
    if request.model.moe is not None:
        return "of models with experts there is none"
    if cluster.tiers[-1].domain_gpus is not None and cluster.tiers[-1].domain_gpus <= cluster.gpus_per_node:
        return f"{cluster.gpu.name}: its nodes have no network (a tier that spans them)"
    return None


def _spaces(models: Sequence[CostModel]) -> Iterator[Callable[[float], Outcome]]:
    """The pipelines of every order of the kinds, number of stages on each, and number of sequences at a time."""
    batch = models[0].request.workload.global_batch
    most = min(space.units(models[0].request.model), MOST_STAGES)
    for pp, order in itertools.product(range(len(models), most + 1), orders(len(models))):
        for counts in _shares(pp, [models[kind] for kind in order]):
            for sequences in divisors(batch, batch).tolist():
                kinds = _stage_kinds([models[kind] for kind in order], counts, sequences)
                if kinds:
                    yield partial(_under, kinds)


def _shares(pp: int, models: Sequence[CostModel]) -> Iterator[tuple[int, ...]]:
    """How many of `pp` stages each kind can have: whole nodes or equal parts of one."""
    ways = [[count for count in range(1, pp) if _fills_nodes(model.request.cluster, count)] for model in models]
    return (counts for counts in itertools.product(*ways) if sum(counts) == pp)


def _fills_nodes(cluster: ClusterSpec, stages: int) -> bool:
    size, rest = divmod(cluster.gpus, stages)
    node = min(cluster.gpus_per_node, cluster.gpus)
    return rest == 0 and (node % size == 0 or size % node == 0)


def _stage_kinds(models: Sequence[CostModel], counts: tuple[int, ...], sequences: int) -> list[StageKind]:
    """The stages of each kind, which follow each other; none where a kind has no layout of its size."""
    nodes = sum(model.request.cluster.nodes for model in models)
    found: list[StageKind] = []
    for model, start, count in zip(models, itertools.accumulate((0, *counts)), counts, strict=False):
        request = model.request
        columns = stage_layouts(request, sum(counts), sequences, [request.cluster.gpus // count])
        if not len(columns["tp"]):
            return []
        costs = LayoutCosts.of(model, columns)
        slowed = request.profile.sustained_on(request.cluster.nodes) / request.profile.sustained_on(nodes)
        costs = replace(costs, relief=np.full_like(costs.relief, slowed))
        found.append(StageKind(model, costs, range(start, start + count), request.cluster.gpus))
    return found


def _under(kinds: Sequence[StageKind], limit_s: float) -> Outcome:
    """As `fastest`; nothing is looked at where the work alone, dealt as each kind's speed has it, is over the limit."""
    request = kinds[0].model.request
    units_per_s = sum(kind.model.request.cluster.gpus / kind.least_gpu_s for kind in kinds)
    if space.units(request.model) / units_per_s >= limit_s:
        return None, limit_s
    return fastest(kinds, None, limit_s, request.gap)


def _with(document: PlanDocument, sentence: str) -> PlanDocument:
    return document.replaced(assumptions=(*document.assumptions, sentence))
