"""A dry run against ranks that are there, against the whole step, and against what the planner predicts."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from cli.dry_comparison import Comparison, Quantity, compared
from cli.dry_differences import Difference
from cli.dry_prediction import Prediction
from cli.main import run as plan
from planner.check import checked
from planner.document import PlanDocument, Recompute, read, write
from planner.document.job import Job, job_of
from planner.explain.setting import Plan
from planner.fixed import planned
from planner.proposal import of_text
from planner.request import build_request
from runtime import dry_run as module
from runtime.constants import Constants
from runtime.data import Drawn as DrawnTokens
from runtime.data import batch_of
from runtime.dry_run import DryRank, dry_run
from runtime.initial import Drawn
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill
from runtime.precision import precision_of
from runtime.rank import build, materialize
from runtime.training import train_step
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import MODELS, small_job, small_model

GOLDEN = Path(__file__).parents[1] / "golden"
Counts = dict[tuple[str, tuple[int, ...]], tuple[int, int]]
# Of c10d's operations: our name, and which arguments are the group and the whole tensor.
OPERATIONS = {
    "_allgather_base_": ("all_gather", 2, 0),
    "_reduce_scatter_base_": ("reduce_scatter", 2, 1),
    "allreduce_": ("all_reduce", 1, 0),
    "send": ("send", 1, 0),
    "recv_": ("recv", 1, 0),
}


class Counting(TorchDispatchMode):
    """Counts what real ranks send."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Any] = Counter()
        self.sent_bytes: Counter[Any] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "c10d":
            kind, group, whole = OPERATIONS[function.overloadpacket.__name__]
            ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(args[group])))
            tensors = args[whole] if isinstance(args[whole], list) else [args[whole]]
            if len(ranks) > 1:
                self.calls[kind, ranks] += 1
                self.sent_bytes[kind, ranks] += sum(tensor.nbytes for tensor in tensors)
        return function(*args, **(kwargs or {}))


def sent(job: Job) -> Counts:
    """What this rank, one of a gloo world, sends in its first step."""
    rank = build(job, precision_of(job.recipe), torch.device("cpu"), Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, Drawn(job.model, 0))
    batch = batch_of(DrawnTokens(job.model.vocab, job.workload.seq_len, 0), job, rank.groups.data_rank, 0)
    optimizer = Optimizer(rank, Settings())
    with Counting() as counting:
        train_step(rank, optimizer, batch, 0)
    return {one: (calls, counting.sent_bytes[one]) for one, calls in counting.calls.items()}


def told(found: DryRank) -> Counts:
    """What a dry run says of that."""
    return {(one.kind, one.ranks): (one.calls, one.sent_bytes) for one in found.sent}


ON_RANKS: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor and pipeline": ("llama", {"tp": 2, "pp": 2, "micro_batches": 4}),
    "context, weights gathered anew": (
        "qwen",
        {
            "tp": 2,
            "cp": 2,
            "zero": 3,
            "reshard": True,
            "recompute": Recompute(set=("norm", "core_attention"), layers=2),
        },
    ),
    "split backwards": ("llama", {"pp": 2, "shard": 2, "zero": 3, "reshard": True, "schedule": "zb-v"}),
    "replicas, a tied matrix at both ends": ("gpt", {"pp": 2, "replicate": 2, "zero": 2, "micro_batches": 3}),
    "split, everything computed again": (
        "llama",
        {"tp": 2, "pp": 2, "schedule": "zb-v", "recompute": Recompute(set=("full",), layers=1)},
    ),
    "everything computed again": ("llama", {"tp": 4, "recompute": Recompute(set=("full",), layers=4)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ON_RANKS)
def test_a_dry_run_counts_what_ranks_send(case: str, ranks: Ranks) -> None:
    """Calls and bytes of every collective of every group, on each of four gloo ranks."""
    model, options = ON_RANKS[case]
    job = small_job(small_model(**MODELS[model]), **options)
    real = ranks(4).run(sent, job)
    assert [told(dry_run(job, rank)) for rank in range(4)] == real


@pytest.mark.parametrize(
    "options",
    [
        {"pp": 2, "tp": 2, "micro_batches": 12},
        {"pp": 2, "vpp": 2, "schedule": "interleaved", "micro_batches": 12, "group_size": 2, "zero": 2, "shard": 2},
        {"pp": 2, "schedule": "zb-h1", "micro_batches": 24, "zero": 3, "reshard": True, "shard": 2},
    ],
)
def test_a_whole_step_is_told_from_shorter_ones(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they send evenly more; what is told is what running all micro-batches counts."""
    job = small_job(small_model(), **options)
    extended = dry_run(job, 1)
    monkeypatch.setattr(module, "_shorter", lambda *_, **__: [])
    whole = dry_run(job, 1)
    assert sum(extended.micro_batches_run) < job.layout.num_microbatches == sum(whole.micro_batches_run)
    assert told(extended) == told(whole)
    assert extended.state_bytes == whole.state_bytes


def beside_prediction(document: PlanDocument, stage: int) -> Comparison:
    """The first rank of a stage, compared."""
    candidate = Plan(planned(document))
    job, stride = job_of(document), candidate.candidate.pipeline.layout["pp_stride"]
    return compared(Prediction(candidate.stages()[stage]), job, dry_run(job, stage * stride), "middle")


def unexplained(comparison: Comparison) -> list[str]:
    """What differs without a reason, in words."""
    wrong = [f"{one.item}: {one.predicted} != {one.found}" for one in comparison.quantities if one.unexplained]
    return [*comparison.faults, *wrong]


LLAMA, QWEN, GEMMA, GPT = "llama3-8b", "qwen3-0.6b", "gemma2-2b", "gpt2"
PLANS: list[tuple[str, int, str]] = [
    (LLAMA, 8, "tp=2,pp=2"),
    (LLAMA, 8, "tp=2,cp=4"),
    (LLAMA, 8, "tp=2,cp=2,pp=2,recompute=full"),
    (LLAMA, 8, "tp=2,cp=2,recompute=core_attention"),
    (LLAMA, 8, "tp=2,cp=2,pp=2,rank_order=tp-cp-ep-pp-dp"),
    (LLAMA, 8, "tp=2,sequence_parallel=false,recompute=mlp"),
    (LLAMA, 8, "tp=2,pp=2,zero_stage=0"),
    (LLAMA, 8, "pp=4,zero_stage=2,schedule=zb-h1"),
    (LLAMA, 8, "pp=2,vpp=2,schedule=zb-v,zero_stage=3"),
    (LLAMA, 8, "tp=2,pp=2,vpp=2,schedule=zb-v"),
    (LLAMA, 8, "tp=2,pp=2,vpp=2,schedule=zb-v,recompute=full"),
    (LLAMA, 8, "tp=2,pp=4,schedule=zb-h1,recompute=mlp"),
    (LLAMA, 8, "pp=2,vpp=2,schedule=interleaved,zero_stage=3"),
    (LLAMA, 8, "dp_shard=2,dp_replicate=4,zero_stage=3"),
    (LLAMA, 8, "zero_stage=3,reshard_after_forward=false"),
    (LLAMA, 6, "dp_shard=3,dp_replicate=2,zero_stage=3"),
    (QWEN, 8, "tp=2"),
    (QWEN, 6, "pp=2"),
    (QWEN, 8, "pp=2,vpp=2,schedule=zb-v"),
    (GEMMA, 8, "tp=2,pp=2"),
    (GPT, 8, "tp=4,pp=2,recompute=norm+activation"),
]


@pytest.mark.parametrize(("model", "gpus", "layout"), PLANS)
def test_a_plan_sends_and_holds_what_is_predicted(model: str, gpus: int, layout: str) -> None:
    """On the first rank of the first and of the last stage, but for what has a reason."""
    document = small_plan(model, gpus, layout)
    for stage in {0, document.parallelism.pp - 1}:
        assert unexplained(beside_prediction(document, stage)) == []


def small_plan(model: str, gpus: int, layout: str) -> PlanDocument:
    """A plan of four layers of a model."""
    request = build_request(model, gpus, "80GB", seq_len="1024", global_batch=48, overrides=["model.layers=4"])
    document = checked(of_text(layout, request)).document
    assert document is not None
    return document


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stage"),
    [
        *(("llama3-8b_8", stage) for stage in (0, 1)),
        *(("llama3-70b_256", stage) for stage in (0, 1, 3)),
        *(("llama3-405b_16384", stage) for stage in (0, 1, 31)),
    ],
)
def test_plans_of_llama_send_and_hold_what_is_predicted(name: str, stage: int) -> None:
    """On 8, 256 and 16,384 GPUs; parameters and states to the last byte, without a reason needed."""
    comparison = beside_prediction(read(GOLDEN / f"{name}.json"), stage)
    assert unexplained(comparison) == []
    exact = {one.item[0] for one in comparison.quantities if one.verdict == "equal"}
    assert {"parameters", "owned parameters", "state", "actions"} <= exact
    states = [one for one in comparison.quantities if one.item[0] in ("parameters", "owned parameters", "state")]
    assert {one.verdict for one in states} == {"equal"}


def test_a_quantity_differs_by_what_no_reason_explains() -> None:
    """Reasons are taken off; half a unit is rounding."""
    reason = Difference(("calls",), 3, "because")
    assert Quantity(("calls",), "calls", 7, 10, (reason,)).verdict == "explained"
    assert Quantity(("calls",), "calls", 10.4, 10).verdict == "equal"
    assert Quantity(("calls",), "calls", 7, 11, (reason,)).unexplained == 1
    assert Quantity(("calls",), "calls", 10, 10, (reason,)).verdict == "differs"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan on 8 GPUs."""
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    write(small_plan(LLAMA, 8, "tp=2,pp=2"), str(file))
    return str(file)


def test_the_command_tells_every_kind_of_rank(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table with its reasons below, and as JSON."""
    assert plan(["dry-run", plan_file, "--all-kinds"]) == 0
    text = capsys.readouterr().out
    assert "Rank 0, the first stage" in text
    assert "Rank 4, the last stage" in text
    assert "[1]" in text
    assert "agrees: " in text
    assert plan(["dry-run", plan_file, "--rank", "7", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["agrees"] is True
    (rank,) = data["ranks"]
    assert (rank["rank"], rank["stage"], rank["kind"]) == (7, 1, "last")
    parameters = next(one for one in rank["quantities"] if one["item"] == ["parameters"])
    assert parameters["predicted"] == parameters["found"] > 0


def test_an_unexplained_difference_is_exit_1(
    plan_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, with by how much."""

    def short_of_a_collective(job: Job, rank: int) -> DryRank:
        found = dry_run(job, rank)
        lost = next(one for one in found.sent if one.kind == "reduce_scatter")
        return DryRank(**{**vars(found), "sent": tuple(one for one in found.sent if one is not lost)})

    monkeypatch.setattr(module, "dry_run", short_of_a_collective)
    assert plan(["dry-run", plan_file]) == 1
    assert "DIFFERS: 2 of what was compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rank", "8"], 2, "--rank must be a rank of the plan, 0 to 7, got 8"),
        (["--rank", "1", "--all-kinds"], 2, "--rank and --all-kinds cannot be given together"),
    ],
)
def test_wrong_ranks_are_bad_input(
    arguments: list[str], code: int, message: str, plan_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told with what is allowed."""
    assert plan(["dry-run", plan_file, *arguments]) == code
    assert message in capsys.readouterr().err


def test_what_the_runtime_cannot_honour_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    """With the field named, before anything is built."""
    assert plan(["dry-run", str(GOLDEN / "mixtral-8x7b_64.json")]) == 3
    assert "model.moe must be none to run here" in capsys.readouterr().err
