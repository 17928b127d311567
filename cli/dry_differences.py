"""In what the runtime differs from what the planner counts, and by how much: each difference with its reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cli.dry_prediction import Prediction
from cost_models.schedules.table import Kind
from planner.document.job import Job, VirtualStage, virtual_stages
from runtime.dry_run import DryRank

__all__ = ["Difference", "differences"]

# What a step of the runtime sums over all ranks: the loss for its record, and the norm of the gradients, in float64.
SCALAR_BYTES = 8
# What torch's pipelining asks and answers before the first micro-batch, in fp32.
VOTE_BYTES = 4
GATHERED_BYTES = 2


@dataclass(frozen=True)
class Difference:
    """What a quantity has more here than in the prediction, less if negative. `item` names the quantity."""

    item: tuple[str, ...]
    amount: float
    reason: str


def differences(prediction: Prediction, job: Job, found: DryRank) -> Iterator[Difference]:
    """All that is known to differ; what is left between prediction and dry run has no reason."""
    yield from _tensor_parallel(prediction, job, found)
    yield from _context_parallel(prediction)
    yield from _of_all_ranks(job)
    yield from _between_stages(prediction)
    yield from _states(prediction, job, found)
    yield from _tied(prediction, job, found)
    yield from _memory(prediction, job, found)


def _both(group: str, kind: str, calls: float, sent_bytes: float, reason: str) -> Iterator[Difference]:
    if calls:
        yield Difference(("calls", group, kind), calls, reason)
    if sent_bytes:
        yield Difference(("bytes", group, kind), sent_bytes, reason)


def _tensor_parallel(prediction: Prediction, job: Job, found: DryRank) -> Iterator[Difference]:
    if "tensor" not in prediction.groups:
        return
    if prediction.symbol("has_head"):
        reason = "the sum of a token's exponentials and its own logit are reduced in one call"
        yield from _both("tensor", "all_reduce", -prediction.micro_batches, 0, reason)
    for group, name in (("tensor", "norms' weights"), ("copies", "heads that several ranks hold")):
        elements = found.shared_gradients[group]
        if elements:
            reason = f"gradients of {name}, of which each rank has a part, are added up once a step"
            yield from _both(group, "all_reduce", 1, elements * _stored_bytes(job), reason)
    gathers, gathered_bytes = _recomputed(prediction, "tensor", "all_gather")
    reason = "what is computed again keeps what it gathers until its backward, which does not gather it once more"
    yield from _both("tensor", "all_gather", -gathers, -gathered_bytes, reason)
    yield from _early_stop(prediction, job)
    if job.layout.sequence_parallel:
        again = sum(apart * (_read_twice(stage) + head) for apart, stage, head in _split(prediction, job))
        calls, sent_bytes = prediction.total("all_gather", "tensor_parallel")
        reason = "each half of a split backward gathers what its products read"
        yield from _both("tensor", "all_gather", again, again * sent_bytes / max(calls, 1), reason)


def _split(prediction: Prediction, job: Job) -> Iterator[tuple[int, VirtualStage, bool]]:
    """How often the weight gradients of each chunk come apart, the chunk, and whether it has the head.

    The model's first chunk has no input gradient: its backward is one.
    """
    apart = Counter(stage for kind, stage, _ in prediction.actions if kind == Kind.WEIGHT_GRAD.name.lower())
    last = job.layout.pp * job.layout.vpp - 1
    for one in virtual_stages(job):
        if one.rank == prediction.setting.rank and apart[one.index] and one.index:
            yield apart[one.index], one, one.index == last


def _read_twice(stage: VirtualStage) -> int:
    """Gathered tokens that products of a chunk's layers read in both halves; what is computed again keeps its own."""
    return sum(0 if "full" in modules else 2 - ("mlp" in modules) for modules in stage.recompute)


def _early_stop(prediction: Prediction, job: Job) -> Iterator[Difference]:
    """A checkpoint ends with the last tensor that the backward needs; the sum behind the MLP is none."""
    stage = job.stages[prediction.setting.rank]
    whole = "full" in stage.recompute.set
    if job.recipe.recompute_stops_early or not (whole or "mlp" in stage.recompute.set):
        return
    if whole and job.model.norm_placement != "before":
        return
    kind = "reduce_scatter" if job.layout.sequence_parallel else "all_reduce"
    calls, sent_bytes = _recomputed(prediction, "tensor", kind)
    halves = 2 if whole else 1
    reason = "computing again stops before the last sum over tensor-parallel ranks, which no gradient needs"
    yield from _both("tensor", kind, -calls / halves, -sent_bytes / halves, reason)


def _recomputed(prediction: Prediction, group: str, kind: str) -> tuple[float, float]:
    chosen = [
        one
        for one in prediction.collectives
        if one.purpose == "recompute" and one.kind == kind and prediction.group_of(one) == group
    ]
    return sum(one.calls for one in chosen), sum(one.sent_bytes for one in chosen)


def _context_parallel(prediction: Prediction) -> Iterator[Difference]:
    again, again_bytes = _recomputed(prediction, "context", "all_gather")
    reason = "what is computed again keeps the keys and values that it gathers until its backward"
    yield from _both("context", "all_gather", -again, -again_bytes, reason)
    for kind in ("all_gather", "reduce_scatter"):
        calls, _ = prediction.total(kind, "context_parallel")
        yield from _both("context", kind, calls, 0, "keys and values travel in a call each")


def _of_all_ranks(job: Job) -> Iterator[Difference]:
    if job.layout.gpus_used > 1:
        yield from _both("world", "all_reduce", 1, SCALAR_BYTES, "the loss of the step is summed for its record")
        reason = "the norm of the gradients is summed in float64, not in fp32"
        yield from _both("world", "all_reduce", 0, SCALAR_BYTES / 2, reason)


def _between_stages(prediction: Prediction) -> Iterator[Difference]:
    for kind, count in prediction.messages.items():
        votes = count / prediction.micro_batches
        reason = f"torch opens every link with a message of {VOTE_BYTES} bytes, in the first step alone"
        yield from _both("pipeline", kind, votes, votes * VOTE_BYTES, reason)


def _states(prediction: Prediction, job: Job, found: DryRank) -> Iterator[Difference]:
    """Gathers and reductions of states, and what their shares are filled up with."""
    stage = job.stages[prediction.setting.rank]
    reduced = [one for one in prediction.collectives if one.purpose.endswith("_reduce_s") and one.unit != "stage"]
    later = prediction.micro_batches - 1
    for one in reduced:
        if stage.zero_stage >= 2 and not job.recipe.reduces_each_micro_batch:
            reason = "sharded gradients are reduced after every micro-batch, not after the last"
            group = prediction.group_of(one)
            yield from _both(group, one.kind, later * one.calls, later * one.sent_bytes, reason)
    yield from _each_layer(prediction, job)
    if stage.reshard_after_forward:
        for unit, again in _gathered_again(prediction, job).items():
            calls, sent_bytes = prediction.total("all_gather", f"{unit}_gather_s")
            reason = "each half of a split backward gathers its weights"
            yield from _both("states", "all_gather", again, again * sent_bytes / max(calls, 1), reason)
    if not found.padding:
        return
    reason = f"shares of rows are filled up to be equally long: {found.padding:,} elements"
    gathered = sum(one.sent_bytes for one in prediction.collectives if one.purpose.endswith("gather_s"))
    passes = gathered / (GATHERED_BYTES * prediction.parameters)
    yield from _both("states", "all_gather", 0, passes * GATHERED_BYTES * found.padding, reason)
    passes = prediction.micro_batches if stage.zero_stage >= 2 else 1
    extra = passes * job.recipe.gradient_reduce_bytes * found.padding
    yield from _both("states", "reduce_scatter", 0, extra, reason)
    if "replicas" in prediction.groups:
        yield from _both("replicas", "all_reduce", 0, extra / prediction.symbol("dp_shard"), reason)


def _each_layer(prediction: Prediction, job: Job) -> Iterator[Difference]:
    """Layers that the prediction takes together: those of a repeating group, and odd ones with the ends."""
    pattern = job.model.layer_pattern
    more = {"layer": len(pattern.period) - 1, "embedding": len(pattern.leading), "head": len(pattern.trailing)}
    for one in prediction.collectives:
        if one.unit in more and one.purpose.startswith(f"{one.unit}_"):
            reason = "every layer is gathered and reduced by itself, not with others of a repeating group"
            yield from _both(prediction.group_of(one), one.kind, more[one.unit] * one.calls, 0, reason)


def _gathered_again(prediction: Prediction, job: Job) -> dict[str, int]:
    """Gathers of each unit for weight gradients that come apart."""
    split = list(_split(prediction, job))
    return {
        "layer": sum(apart * stage.chunk.layers for apart, stage, _ in split),
        "head": sum(apart * head for apart, _, head in split),
    }


def _tied(prediction: Prediction, job: Job, found: DryRank) -> Iterator[Difference]:
    """Embedding and head that are one matrix: one unit, two copies on one rank, or copies on two."""
    shared = prediction.symbol("shared_parameters")
    ends = prediction.symbol("has_embedding"), prediction.symbol("has_head")
    if not shared or not any(ends):
        return
    if all(ends) and job.layout.pp * job.layout.vpp == 1:
        for one in prediction.collectives:
            if one.purpose in ("head_gather_s", "head_reduce_s", "head_all_reduce_s"):
                reason = "embedding, final norm and head, which share a matrix, are gathered and reduced in one call"
                yield from _both(prediction.group_of(one), one.kind, -one.calls, 0, reason)
        return
    if all(ends):
        yield from _two_copies(prediction, job, shared)
        return
    calls, sent_bytes = prediction.total("all_reduce", "tied_reduce_s")
    if calls:
        reason = "the gradients of the tied matrix at both ends are exchanged, each rank's share of them"
        yield from _both("both ends", "all_reduce", -calls, -sent_bytes, reason)
        for kind in ("send", "recv"):
            yield from _both("pipeline", kind, 1, found.shared_gradients["both ends"] * _stored_bytes(job), reason)


def _two_copies(prediction: Prediction, job: Job, shared: float) -> Iterator[Difference]:
    """A rank whose first chunk has the embedding and whose last one has the head."""
    reason = "two chunks of this rank hold a copy each of the tied matrix"
    recipe, ranks = job.recipe, prediction.symbol("dp_shard")
    stage = job.stages[prediction.setting.rank]
    owned = shared / (ranks if stage.zero_stage else 1)
    yield Difference(("parameters",), shared, reason)
    yield Difference(("owned parameters",), owned, reason)
    yield Difference(("state", "weights"), 0 if stage.zero_stage == 3 else shared * GATHERED_BYTES, reason)
    yield Difference(
        ("state", "gradients"), (owned if stage.zero_stage >= 2 else shared) * recipe.gradient_bytes, reason
    )
    yield Difference(("state", "master_weights"), owned * recipe.master_bytes, reason)
    yield Difference(("state", "moments"), owned * recipe.moment_bytes, reason)
    for kind, each in (("all_gather", GATHERED_BYTES), ("reduce_scatter", recipe.gradient_reduce_bytes)):
        calls, sent_bytes = prediction.total(kind, "embedding_gather_s", "embedding_reduce_s")
        if sent_bytes:
            yield from _both("states", kind, 0, calls * shared * each, reason)


def _memory(prediction: Prediction, job: Job, found: DryRank) -> Iterator[Difference]:
    stage, recipe = job.stages[prediction.setting.rank], job.recipe
    uneven = found.owned_parameters - prediction.owned_parameters
    reason = "rows are dealt out whole: this rank's share is not the mean one"
    if abs(uneven) > 0.5 and found.padding:
        yield Difference(("owned parameters",), uneven, reason)
        for cause, each in (("master_weights", recipe.master_bytes), ("moments", recipe.moment_bytes)):
            yield Difference(("state", cause), uneven * each, reason)
        if stage.zero_stage >= 2:
            yield Difference(("state", "gradients"), uneven * recipe.gradient_bytes, reason)
    if stage.zero_stage >= 2 and recipe.gradient_bytes != _stored_bytes(job):
        wider = (_stored_bytes(job) - recipe.gradient_bytes) * found.owned_parameters
        reason = "sharded gradients are kept in the type of the parameters that they step"
        yield Difference(("state", "gradients"), wider, reason)
    if stage.zero_stage < 3 and not recipe.master_bytes:
        reason = "the share that the optimizer steps is kept beside the gathered weights"
        yield Difference(("state", "weights"), found.state_bytes["owned"], reason)
        if recipe.weight_bytes != GATHERED_BYTES:
            wider = (recipe.weight_bytes - GATHERED_BYTES) * prediction.parameters
            yield Difference(("state", "weights"), -wider, "weights are gathered in bf16")
    if stage.zero_stage == 3 and recipe.master_bytes:
        reason = "no bf16 share is kept: it is cast from the masters when it is gathered"
        yield Difference(("state", "weights"), -prediction.setting.cost("weights"), reason)


def _stored_bytes(job: Job) -> float:
    return job.recipe.master_bytes or job.recipe.weight_bytes
