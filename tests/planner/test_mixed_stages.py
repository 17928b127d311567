"""Pipelines on several kinds of GPUs: the best of all of them, told beside the best plan of one kind."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from planner.heterogeneous import stage_layouts
from planner.layout_costs import LayoutCosts
from planner.mixed import plan_groups, requests_of
from planner.mixed_stages import best_mixed_plan, orders
from planner.predict import CostModel
from planner.report.terminal import report
from planner.request import PlanRequest, build_request
from tests.oracles.brute_force import TIMES, BruteForce, Stages
from tests.oracles.legal_layouts import divisors
from tests.oracles.spaces import EXPERTS, SHAPE

WIDE = ("vocab=64000",)


def requests(
    gpus: Sequence[int], layers: int, batch: int, memory: float = 20e9, changes: tuple[str, ...] = ()
) -> list[PlanRequest]:
    """The same small job on groups of H100 and A100, each in nodes of two."""
    overrides = [f"model.layers={layers}", *(f"model.{change}" for change in (*SHAPE, *changes))]
    flags = {"seq_len": "1k", "global_batch": batch, "gpus_per_node": 2, "target": "runtime", "overrides": overrides}
    kinds = zip(("h100", "a100"), gpus, strict=True)
    built = [build_request("llama3-8b", count, gpu=gpu, search="meshes", **flags) for gpu, count in kinds]
    return [each.replaced(gap=0.0, capacity_bytes=memory) for each in built]


class BruteKinds:
    """Every pipeline with stages on all kinds, one by one."""

    def __init__(self, of: Sequence[PlanRequest]) -> None:
        self.requests = of

    def best_s(self) -> float:
        """Seconds of the fastest one, infinity when none fits."""
        job = self.requests[0]
        units, batch = job.model.layer_pattern.repeats, job.workload.global_batch
        best = inf
        for order in permutations(self.requests):
            for counts in product(range(1, units + 1), repeat=len(order)):
                if sum(counts) <= units and all(self._even(*pair) for pair in zip(order, counts, strict=True)):
                    best = min([best, *(self._best_of(order, counts, sequences) for sequences in divisors(batch))])
        return best

    def _even(self, request: PlanRequest, count: int) -> bool:
        """Equal shares that are parts of a node or whole nodes."""
        size, rest = divmod(request.cluster.gpus, count)
        return rest == 0 and (size == 1 or size % 2 == 0)

    def _best_of(self, order: Sequence[PlanRequest], counts: Sequence[int], sequences: int) -> float:
        pp, kinds = sum(counts), [kind for kind, count in enumerate(counts) for _ in range(count)]
        brutes = [self._brute(*pair, pp, sequences) for pair in zip(order, counts, strict=True)]
        best = inf
        for meshes in product(*(range(len(brutes[kind].layouts)) for kind in kinds)):
            for split in self._splits(pp):
                stages = [
                    brutes[kind]._options(mesh, at, layers)
                    for at, (kind, mesh, layers) in enumerate(zip(kinds, meshes, split, strict=True))
                ]
                if all(len(stage.rows) for stage in stages):
                    best = min(best, self._fastest([brutes[kind] for kind in kinds], meshes, stages))
        return best

    def _splits(self, pp: int) -> Iterator[tuple[int, ...]]:
        units = self.requests[0].model.layer_pattern.repeats
        return (split for split in product(range(1, units + 1), repeat=pp) if sum(split) == units)

    def _brute(self, request: PlanRequest, count: int, pp: int, sequences: int) -> BruteForce:
        """The options of one kind: the job's nodes together set the pace of a stage."""
        columns = stage_layouts(request, pp, sequences, [request.cluster.gpus // count])
        brute = BruteForce(request)
        costs, profile = LayoutCosts.of(brute.model, columns), request.profile
        nodes = sum(each.cluster.nodes for each in self.requests)
        slowed = profile.sustained_on(request.cluster.nodes) / profile.sustained_on(nodes)
        brute.costs = replace(costs, relief=np.full(len(columns["tp"]), slowed))
        brute.layouts = [
            {name: int(column[row]) for name, column in columns.items()} for row in range(len(columns["tp"]))
        ]
        return brute

    def _fastest(self, brutes: Sequence[BruteForce], meshes: Sequence[int], stages: Sequence[Stages]) -> float:
        own = [self._network_hop_s(brute, mesh) for brute, mesh in zip(brutes, meshes, strict=True)]
        hops = np.array([max(pair) for pair in pairwise(own)] + [0.0])
        count = brutes[0].layouts[meshes[0]]["num_microbatches"]
        table = schedules.actions("1f1b", len(stages), 1, count)
        best = inf
        for chosen in product(*(range(len(stage.rows)) for stage in stages)):
            pairs = list(zip(stages, chosen, strict=True))
            cells = [np.array([stage.chunk_s[kind][row] for stage, row in pairs]) for kind in range(len(TIMES))]
            edges = [np.array([getattr(stage, name)[row] for stage, row in pairs]) for name in ("first_s", "last_s")]
            times = StageTimes.of(*cells, first_s=edges[0], last_s=edges[1], hop_s=hops)
            step_s = float(simulate(table, times).span_s) + max(stage.global_s[row] for stage, row in pairs)
            best = min(best, step_s)
        return best

    def _network_hop_s(self, brute: BruteForce, mesh: int) -> float:
        size = float(brute.costs.per_micro_batch("boundary_bytes")[mesh])
        request = brute.request
        return float(hop_seconds(request.cluster, request.profile, size, 10**6, 2)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "layers", "batch", "memory", "changes"),
    [
        ((2, 2), 3, 4, 20e9, ()),
        ((2, 4), 4, 4, 20e9, ()),
        ((4, 2), 3, 8, 3.2e9, WIDE),
        ((2, 2), 4, 2, 3.2e9, WIDE),
    ],
)
def test_the_best_of_all_pipelines_on_two_kinds_is_found(
    gpus: tuple[int, int], layers: int, batch: int, memory: float, changes: tuple[str, ...]
) -> None:
    """As by brute force over order, stages of each kind, TP, DP, layers, sharding and recompute, hops included."""
    both = requests(gpus, layers, batch, memory, changes)
    found, best_s = best_mixed_plan([CostModel(request) for request in both]), BruteKinds(both).best_s()
    assert (found is None) == (best_s == inf)
    assert found is not None
    assert found.step_s == pytest.approx(best_s, rel=1e-8)
    assert found.step_s * (1 - 1e-6) <= found.bound_s <= best_s * (1 + 1e-9)
    assert sum(stage.layers for stage in found.stages) == layers
    on_each = [sum(stage.gpus for stage in found.stages if stage.gpu == each.cluster.gpu.name) for each in both]
    assert on_each == list(gpus)


def test_faster_gpus_hold_more_layers() -> None:
    """Equal numbers of two kinds: the slower one's stage is the smaller one."""
    found = best_mixed_plan([CostModel(request) for request in requests((2, 2), 12, 8)])
    assert found is not None
    held = {gpu: sum(stage.layers for stage in found.stages if stage.gpu == gpu) for gpu in ("h100-sxm", "a100-80-sxm")}
    assert held["h100-sxm"] > held["a100-80-sxm"] > 0


def test_the_order_of_many_kinds_is_the_files() -> None:
    """All orders of up to three."""
    assert [len(orders(kinds)) for kinds in (2, 3, 4)] == [2, 6, 1]


def test_it_is_told_beside_the_best_plan_of_one_kind(tmp_path: Path) -> None:
    """With the kinds of its stages and what it gains; the plan itself stays that of one kind."""
    path = tmp_path / "cluster.toml"
    path.write_text('name = "two"\n[[groups]]\ngpu = "h100"\ngpus = 8\n[[groups]]\ngpu = "a100"\ngpus = 8\n')
    flags = {"model": "llama3.2-1b", "global_batch": 64, "seq_len": "2k", "cluster": str(path), "target": "runtime"}
    alone = plan_groups(requests_of({**flags, "schedule": "1f1b"}))
    document = plan_groups(requests_of({**flags, "schedule": "1f1b", "search": "meshes"}))
    found = document.heterogeneous
    assert alone.heterogeneous is None
    assert any("Not searched: stages on several kinds" in sentence for sentence in alone.assumptions)
    assert found is not None
    assert document.predicted == alone.predicted
    assert found.faster_by == pytest.approx(1 - found.step_time_s / alone.predicted.step_time_s)
    assert {stage.gpu for stage in found.stages} == {"h100-sxm", "a100-80-sxm"}
    out = io.StringIO()
    Console(file=out, width=120).print(report(document))
    assert "8 a100-80-sxm" in out.getvalue()


def test_experts_and_kinds_without_a_network_have_none(tmp_path: Path) -> None:
    """The answer says why there is none."""
    path = tmp_path / "cluster.toml"
    path.write_text('name = "two"\n[[groups]]\ngpu = "h100"\ngpus = 4\n[[groups]]\ngpu = "a100"\ngpus = 4\n')
    flags = {"model": "llama3-8b", "global_batch": 8, "seq_len": "1k", "cluster": str(path), "target": "runtime"}
    overrides = [f"model.{change}" for change in ("layers=2", *SHAPE, *EXPERTS)]
    document = plan_groups(requests_of({**flags, "search": "meshes", "schedule": "1f1b", "overrides": overrides}))
    assert document.heterogeneous is None
    assert any("of models with experts there is none" in sentence for sentence in document.assumptions)
