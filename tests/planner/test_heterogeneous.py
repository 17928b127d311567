"""Stages of different sizes: the best of all of them, and never worse than what is told."""

import io
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from rich.console import Console

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from cost_models.specs.errors import SpecError
from planner.document import HeterogeneousPlan, HeterogeneousStage, dumps, loads
from planner.errors import RequestError
from planner.heterogeneous import best_mesh_plan, mesh_layouts, stage_sizes
from planner.layout_costs import LayoutCosts
from planner.mesh_pipeline import MeshPlan
from planner.predict import CostModel
from planner.report.terminal import report
from planner.request import PlanRequest, build_request
from planner.search import plan
from tests.oracles.brute_force import BruteForce, Stages
from tests.oracles.legal_layouts import divisors
from tests.oracles.spaces import EXPERTS, ODD_HEADS, SLOW_NETWORK, Space

SPACES = [
    Space(3, 3, 2, 0.4, schedule="1f1b"),
    Space(3, 5, 4, 1.0, schedule="1f1b", gpus_per_node=4),
    Space(3, 4, 3, 1.0, schedule="1f1b", changes=ODD_HEADS),
    Space(3, 4, 2, 1.0, schedule="1f1b", gpus_per_node=4, changes=("vocab=32000",)),
    Space(4, 4, 4, 0.5, schedule="1f1b", changes=SLOW_NETWORK),
    Space(4, 3, 2, 0.6, schedule="1f1b", gpus_per_node=4, changes=("vocab=64000",)),
    Space(5, 3, 2, 1.0, schedule="1f1b", gpus_per_node=8, changes=("vocab=64000",)),
]


class BruteMeshes:
    """Every pipeline of stages of every size, one by one."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.model = CostModel(request)

    def best_s(self) -> float:
        """Seconds of the fastest one, infinity when none fits."""
        batch, units = self.request.workload.global_batch, self.request.model.layer_pattern.repeats
        pairs = product(range(2, min(units, self.request.cluster.gpus) + 1), divisors(batch))
        return min((self._best_of(pp, sequences) for pp, sequences in pairs), default=inf)

    def _best_of(self, pp: int, sequences: int) -> float:
        columns = mesh_layouts(self.request, pp, sequences)
        brute = BruteForce(self.request)
        brute.costs = LayoutCosts.of(brute.model, columns)
        brute.layouts = [
            {name: int(column[row]) for name, column in columns.items()} for row in range(len(columns["tp"]))
        ]
        gpus = (columns["tp"] * columns["dp"]).tolist()
        best = inf
        for meshes in product(range(len(gpus)), repeat=pp):
            if sum(gpus[mesh] for mesh in meshes) != self.request.cluster.gpus:
                continue
            for split in product(range(1, self.request.model.layer_pattern.repeats + 1), repeat=pp):
                if sum(split) == self.request.model.layer_pattern.repeats:
                    pairs = enumerate(zip(meshes, split, strict=True))
                    stages = [brute._options(mesh, at, count) for at, (mesh, count) in pairs]
                    if all(len(stage.rows) for stage in stages):
                        best = min(best, self._fastest(brute, meshes, stages))
        return best

    def _fastest(self, brute: BruteForce, meshes: tuple[int, ...], stages: list[Stages]) -> float:
        layouts = [brute.layouts[mesh] for mesh in meshes]
        sizes = [float(brute.costs.per_micro_batch("boundary_bytes")[mesh]) for mesh in meshes]
        cluster, profile = self.request.cluster, self.request.profile
        reach = max(cluster.gpus // 2, 1)
        hops = [hop_seconds(cluster, profile, max(pair), reach, 2)[0] for pair in pairwise(sizes)] + [0.0]
        table = schedules.actions("1f1b", len(meshes), 1, layouts[0]["num_microbatches"])
        best = inf
        for chosen in product(*(range(len(stage.rows)) for stage in stages)):
            pairs = list(zip(stages, chosen, strict=True))
            cells = [np.array([stage.chunk_s[kind][row] for stage, row in pairs]) for kind in range(3)]
            edges = [np.array([getattr(stage, name)[row] for stage, row in pairs]) for name in ("first_s", "last_s")]
            times = StageTimes.of(*cells, first_s=edges[0], last_s=edges[1], hop_s=np.array(hops))
            step_s = float(simulate(table, times).span_s) + max(stage.global_s[row] for stage, row in pairs)
            best = min(best, step_s)
        return best


@pytest.mark.parametrize(
    "space",
    [pytest.param(space, id=space.name, marks=pytest.mark.slow if at else []) for at, space in enumerate(SPACES)],
)
def test_the_best_of_all_pipelines_of_different_stages_is_found(space: Space) -> None:
    """As by brute force over sizes, TP, DP, layers, sharding and recompute of each stage, hops included."""
    request = space.request()
    found, best_s = best_mesh_plan(CostModel(request)), BruteMeshes(request).best_s()
    assert found is not None
    assert found.step_s == pytest.approx(best_s, rel=1e-8)
    assert found.step_s * (1 - 1e-6) <= found.bound_s <= best_s * (1 + 1e-9)
    check(found, request)


def check(plan: MeshPlan, request: PlanRequest) -> None:
    """All layers, all GPUs, and the same sequences at a time at every stage."""
    assert sum(stage.layers for stage in plan.stages) == request.model.layers
    assert sum(stage.gpus for stage in plan.stages) == request.cluster.gpus
    at_a_time = {stage.dp * stage.micro_batch_size for stage in plan.stages}
    assert len(at_a_time) == 1
    assert at_a_time.pop() * plan.num_microbatches == request.workload.global_batch


def test_a_faster_pipeline_is_told_beside_the_plan() -> None:
    """With its stages, its bound and what it gains, in document and report; the document's own plan stays one mesh."""
    request = SPACES[2].request().replaced(target="runtime", search=("meshes",))
    document, alone = plan(request), plan(request.replaced(search=()))
    found = document.heterogeneous
    assert found is not None
    assert document.predicted == alone.predicted
    assert alone.heterogeneous is None
    assert found.step_time_s == pytest.approx(BruteMeshes(request).best_s(), rel=1e-8)
    assert found.faster_by == pytest.approx(1 - found.step_time_s / document.predicted.step_time_s)
    assert sum(stage.gpus for stage in found.stages) == request.cluster.gpus
    out = io.StringIO()
    Console(file=out, width=100).print(report(document))
    assert "Stages of different sizes" in out.getvalue()
    assert dumps(loads(dumps(document))) == dumps(document)


def test_experts_and_other_targets_have_none() -> None:
    """No launcher has stages of different sizes: the flag is refused for one. Models with experts have no plan."""
    with pytest.raises(RequestError, match="--search meshes needs --target runtime"):
        build_request("llama3-8b", 8, gpu="h100", search="meshes")
    assert best_mesh_plan(CostModel(Space(4, 2, 4, 1.0, gpus_per_node=4, changes=EXPERTS).request())) is None


def test_sizes_of_stages_fill_nodes() -> None:
    """Parts of a node are multiples of each other; beyond it they are whole nodes; on one node any size goes."""
    sizes = {gpus: stage_sizes(Space(gpus, 4, 4, 0.5, gpus_per_node=4).request()) for gpus in (3, 4, 12)}
    assert sizes == {3: [1, 2], 4: [1, 2, 3], 12: [1, 2, 4, 8]}


def test_a_document_of_stages_that_do_not_agree_is_refused() -> None:
    """Every stage works on the same sequences at a time."""
    stage = HeterogeneousStage(
        layers=2,
        gpus=2,
        tp=1,
        dp=2,
        micro_batch_size=1,
        zero_stage=1,
        recompute_layers=0,
        device_bytes=1e9,
        gpu="h100-sxm",
    )
    plans = {"num_microbatches": 4, "step_time_s": 1.0, "bound_s": 1.0, "faster_by": 0.1}
    assert HeterogeneousPlan(stages=(stage, stage), **plans)
    for change in ({"micro_batch_size": 2}, {"tp": 2}):
        with pytest.raises(SpecError, match=r"stages\[1\]"):
            HeterogeneousPlan(stages=(stage, stage.replaced(**change)), **plans)
