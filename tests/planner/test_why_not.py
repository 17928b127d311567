"""Why not: rules first, then memory, then how much slower and where."""

import io

import pytest
from rich.console import Console

from cost_models.specs.errors import SpecError
from planner.document import PlanDocument, read
from planner.errors import RequestError
from planner.evaluate.answers import answers as evaluated
from planner.report.why_not import why_not_report
from planner.request import PlanRequest, build_request
from planner.restriction import has, parsed, restricted
from planner.search import plan
from planner.why_not import Answer, why_not
from tests.golden.jobs import JOBS

MIXTRAL = next(job for job in JOBS if job.name == "mixtral-8x7b_64")
# Restrictions of the plan below that something legal satisfies and that fit.
FITTING = ("tp=4", "tp=2,pp=2", "micro_batch_size=2", "zero_stage=3", "recompute=full", "schedule=gpipe,pp=2", "dp=1")


@pytest.fixture(scope="module")
def request_() -> PlanRequest:
    """Llama-3-8B on 8 H100 with a small batch."""
    return build_request("llama3-8b", 8, "80GB", global_batch=16)


@pytest.fixture(scope="module")
def document(request_: PlanRequest) -> PlanDocument:
    """Its plan."""
    return plan(request_)


@pytest.fixture(scope="module")
def answers(document: PlanDocument, request_: PlanRequest) -> dict[str, Answer]:
    """The answers to FITTING."""
    return {text: why_not(document, text, request_) for text in FITTING}


@pytest.mark.slow
def test_the_answer_is_the_best_plan_with_the_values(document, request_, answers):
    """It has them, it is what planning under them finds, and no such plan beats the plan by more than the gap."""
    for text, answer in answers.items():
        assert answer.kind in ("slower", "tie", "same")
        if answer.kind == "same":
            continue
        assert answer.other is not None
        assert has(answer.other, parsed(text))
        assert answer.proven
        assert answer.other.predicted.step_time_s >= document.predicted.step_time_s * (1 - request_.gap)
    for text in FITTING[:2]:
        alone = plan(restricted(request_, parsed(text)))
        assert answers[text].other.predicted.step_time_s == alone.predicted.step_time_s


@pytest.mark.slow
def test_the_answer_costs_what_evaluate_says_of_it(answers):
    """Its layout as a row of a table takes the same step: wherever the table has a column for all that it is."""
    others = [answer.other for answer in answers.values() if answer.other is not None]
    told = [other for other in others if len(other.stages) == 1]
    assert len(told) >= 3
    for other, answer in zip(told, evaluated([row_of(other) for other in told]), strict=True):
        assert answer.status == "ok"
        assert answer.costs.step_time_s == pytest.approx(other.predicted.step_time_s, rel=1e-8)
        assert answer.costs.allocated_bytes == pytest.approx(other.predicted.peak_memory_bytes.allocated, rel=1e-8)


def row_of(document: PlanDocument) -> dict[str, str]:
    """A plan of one stage as a row of a table of runs."""
    parallelism, stage = document.parallelism, document.stages[0]
    degrees = {name: getattr(parallelism, name) for name in ("tp", "cp", "cp_type", "pp", "vpp", "dp", "schedule")}
    cells = {
        **{"model": document.model.name, "gpu": "H100", "gpus_per_node": 8, "recipe": "megatron", "precision": "bf16"},
        **degrees,
        "n_gpus": parallelism.gpus_used,
        "sp": int(parallelism.sequence_parallel),
        "micro_batch": parallelism.micro_batch_size,
        "global_batch_seqs": document.workload.global_batch,
        "seq_len": document.workload.seq_len,
        "zero_or_fsdp": stage.zero_stage,
        "recompute": "+".join(stage.recompute.set) or "none",
    }
    return {name: str(value) for name, value in cells.items()}


@pytest.mark.slow
def test_the_difference_is_told_by_cause(document, answers):
    """Differences of time add up to that of the steps, differences of memory to that of the fullest GPUs."""
    compared = [answer for answer in answers.values() if answer.other]
    assert len(compared) >= 4
    for answer in compared:
        step_s = answer.other.predicted.step_time_s
        slower_s = sum(each.more for each in answer.time)
        assert slower_s == pytest.approx(step_s - document.predicted.step_time_s, rel=1e-6, abs=1e-9)
        assert answer.slower_by == pytest.approx(step_s / document.predicted.step_time_s - 1)
        devices = [each.predicted.peak_memory_bytes.device for each in (answer.other, document)]
        assert sum(each.more for each in answer.memory) == pytest.approx(devices[0] - devices[1], abs=1e3)


@pytest.mark.slow
def test_a_band_makes_ties(answers):
    """Within 10 % the prediction cannot tell plans apart, and the answer says so; beyond it does not."""
    for answer in answers.values():
        if answer.slower_by is not None:
            assert (answer.kind == "tie") == (answer.slower_by <= 0.1)
            assert ("tie" in answer.text) == (answer.kind == "tie")
    assert {"slower", "tie"} <= {answer.kind for answer in answers.values()}


@pytest.mark.slow
def test_full_recompute_is_of_every_layer(answers):
    """Held to full recompute, every stage recomputes all that it has, also where less would fit."""
    stages = answers["recompute=full"].other.stages
    assert all(stage.recompute.set == ("full",) and stage.recompute.layers == stage.layers for stage in stages)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [("group_size=6,pp=4", "interleaved"), ("group_size=4,pp=4", "interleaved"), ("group_size=16,pp=2", "interleaved")]
    + [("slices=8,pp=4", "slimpipe"), ("slices=16,pp=2,schedule=seq1f1b", "seq1f1b")],
)
def test_groups_and_slices_can_be_asked_for(document, request_, text, schedule):
    """Any legal number, also of groups and slices that a search leaves out; the schedule that has them is implied."""
    answer = why_not(document, text, request_)
    assert answer.kind in ("slower", "tie")
    assert has(answer.other, parsed(text))
    assert answer.other.parallelism.schedule == schedule


def test_a_launcher_without_slices_says_so(document, request_):
    """Also where nothing else is asked for: whatever the pipeline, Megatron runs no schedule that has them."""
    answer = why_not(document, "slices=8", request_.replaced(target="megatron"))
    assert (answer.kind, [rule.id for rule in answer.rules]) == ("forbidden", ["megatron-runs-schedule"])


@pytest.mark.parametrize("text", ["group_size=0", "slices=1"])
def test_a_plan_without_groups_or_slices_says_so(document, text):
    """1F1B has no groups, and whole sequences."""
    assert why_not(document, text).kind == "same"


def test_what_the_plan_has_is_no_difference(document):
    """Asking for the plan's own values takes no search."""
    layout = document.parallelism
    answer = why_not(document, f"tp={layout.tp},pp={layout.pp},schedule={layout.schedule}")
    assert (answer.kind, answer.other) == ("same", None)


def test_a_limit_is_told(document, request_):
    """An answer that had no time to be proven says that it is what was found."""
    answer = why_not(document, "micro_batch_size=2", request_.replaced(time_limit_s=1e-6))
    assert answer.other is not None
    assert not answer.proven
    assert "found in time" in answer.text


def test_a_worse_plan_is_found_out(document, request_):
    """A plan that was held to worse values is beaten by the plan's, and told so."""
    worse = plan(restricted(request_, parsed("tp=8,recompute=full")))
    answer = why_not(worse, f"tp={document.parallelism.tp}", request_)
    assert answer.kind == "faster"
    assert answer.other.predicted.step_time_s == pytest.approx(document.predicted.step_time_s, rel=request_.gap)


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ("tp=3", "tp-divides-heads", "nearest: 2 or 4"),
        ("tp=16", "degrees-multiply", "at most gpus (8)"),
        ("pp=33", "stages-have-layers", "32 layers"),
        ("micro_batch_size=3", "batch-divides", "global_batch (16)"),
        ("num_microbatches=7", "microbatches-make-batch", "must be global_batch (16)"),
        ("vpp=2,pp=1", "interleaving-needs-pipeline", "needs pp above 1"),
        ("vpp=2,pp=2,schedule=1f1b", "schedule-1f1b", "one chunk a rank"),
        ("vpp=3,pp=2,schedule=zb-v", "schedule-zb-v", "two chunks a rank"),
        ("group_size=3,pp=4", "schedule-interleaved", "group_size 3"),
        ("group_size=4,pp=4,schedule=1f1b", "schedule-1f1b", "group_size is for interleaved, got 4 for 1f1b"),
        ("slices=4,schedule=1f1b", "schedule-1f1b", "slices is for terapipe, seq1f1b, slimpipe, got 4 for 1f1b"),
        ("slices=6,pp=2", "slices-divide-sequence", "must divide seq_len (8192), got slices 6"),
        ("dp_shard=2,dp_replicate=4,dp=4", "shards-and-replicas-make-dp", "must be dp (4)"),
        ("sequence_parallel=true,tp=1", "sequence-parallel-needs-tp", "needs tp above 1"),
        ("ep=2", "ep-divides-experts", "experts (1)"),
    ],
)
def test_a_rule_that_forbids_is_named(document, request_, text, rule, message):
    """Its id and its message, which tells what is near."""
    answer = why_not(document, text, request_)
    assert answer.kind == "forbidden"
    assert rule in {broken.id for broken in answer.rules}
    assert message in next(broken.message for broken in answer.rules if broken.id == rule)


def test_what_is_legal_but_not_searched_is_no_rule():
    """Experts with replicas of shard groups: no rule forbids them, the search does not know them."""
    answer = why_not(read(MIXTRAL.path), "dp=4,dp_replicate=2")
    assert answer.kind == "not_searched"
    assert "experts with HSDP" in answer.text
    assert answer.rules == ()


def test_memory_is_told_by_how_much_and_from_what(document, request_):
    """Unsharded states of 8B parameters on one GPU: over by what is needed beyond the capacity, moments first."""
    answer = why_not(document, "dp=8,zero_stage=0", request_)
    shortfall = answer.shortfall
    assert answer.kind == "over_memory"
    assert (shortfall.layout["tp"], shortfall.layout["dp"], shortfall.zero_stage) == (1, 8, 0)
    assert shortfall.over_bytes == pytest.approx(shortfall.needed_bytes - request_.capacity_bytes)
    assert shortfall.over_bytes > 0
    total = sum(each.other for each in shortfall.causes)
    assert total * 1.06 == pytest.approx(shortfall.needed_bytes)
    states = next(each.other for each in shortfall.causes if each.cause == "moments")
    assert states == pytest.approx(8 * 8.03e9, rel=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpp=2", "unknown field 'tpp' in why-not; did you mean 'tp'"),
        ("tp=0", "why-not.tp must be >= 1, got 0"),
        ("slices=0", "why-not.slices must be >= 1, got 0"),
        ("group_size=-1", "why-not.group_size must be >= 0, got -1"),
        ("tp=two", "why-not.tp must be a whole number, got 'two'"),
        ("zero_stage=4", "why-not.zero_stage must be <= 3, got 4"),
        ("recompute=half", "why-not.recompute must be one of 'none', 'selective' or 'full', got 'half'"),
        ("schedule=1f1", "why-not.schedule must be one of .*did you mean '1f1b'"),
        ("sequence_parallel=2", "why-not.sequence_parallel must be true or false, got 2"),
        ("tp", "--why-not must be field=value pairs such as tp=8,pp=2, got 'tp'"),
        ("", "--why-not must be field=value pairs"),
        ("tp=2,tp=4", "--why-not gives tp twice: 2 and 4"),
    ],
)
def test_what_cannot_be_asked_is_refused(text, message):
    """The message names the field, the value and what is allowed."""
    with pytest.raises((SpecError, RequestError), match=message):
        parsed(text)


@pytest.mark.slow
def test_every_answer_is_rendered(document, request_, answers):
    """A line that names what was asked and the verdict, and the totals where something is compared."""
    forbidden, over = (why_not(document, text, request_) for text in ("tp=3", "dp=8,zero_stage=0"))
    for answer in (forbidden, over, *answers.values()):
        out = io.StringIO()
        Console(file=out, width=100).print(why_not_report(answer))
        text = out.getvalue()
        assert text.startswith(f"why not {answer.asked}: ")
        assert ("total" in text) == (answer.other is not None or answer.shortfall is not None)
        assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
