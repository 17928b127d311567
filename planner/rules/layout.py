"""What every layout must obey, whatever launches it."""

from collections.abc import Callable
from math import lcm
from typing import Any

import numpy as np

from planner.rules.rule import Rule, Scope, Values, divides, nearest_divisors
from planner.rules.schedules import SCHEDULES

__all__ = ["LAYOUT_RULES"]

INTERLEAVED = SCHEDULES.index("interleaved")
HEADS = "Each rank of a TP group computes whole attention heads."
SLICES = "Column and row parallel matrices are cut into equal slices, one for each rank of the group."


def _legal(
    name: str,
    field: str,
    scope: Scope,
    what: str,
    why: str,
    holds: Callable[[Values], Any],
    message: Callable[[Values], str],
    **example: int,
) -> Rule:
    return Rule(name, "legal", "any", "", field, scope, what, why, holds, message, example)


def _heads_divide(values: Values) -> Any:
    kv_heads, tp = values["kv_heads"], values["tp"]
    return (np.mod(kv_heads, tp) == 0) | (np.mod(tp, kv_heads) == 0)


def _batch_divides(values: Values) -> Any:
    return np.mod(values["global_batch"], values["dp"] * values["micro_batch_size"]) == 0


def _batch_message(values: Values) -> str:
    batch, step = int(values["global_batch"]), int(values["dp"] * values["micro_batch_size"])
    whole = batch // step * step
    batches = " or ".join(str(near) for near in (whole, whole + step) if near)
    return (
        f"dp*micro_batch_size must divide global_batch ({batch}), got {values['dp']}*{values['micro_batch_size']}; "
        f"nearest: {nearest_divisors(step, batch)}, or global_batch {batches}"
    )


def _sequence_unit(values: Values) -> Any:
    """Tokens that a context-parallel rank's share of the sequence is a multiple of: two chunks, the ranks of TP."""
    sharded = np.where(np.equal(values["sequence_parallel"], 0), 1, values["tp"])
    return np.lcm(2, sharded)


def _shards(values: Values) -> Any:
    """Equal parts that ranks cut a slice into: a head and a tail chunk each of cp ranks, sharded over tp."""
    return values["tp"] * np.where(np.equal(values["cp"], 1), 1, 2 * np.asarray(values["cp"]))


def _experts_message(values: Values) -> str:
    inner, experts = int(values["tp"] * values["cp"]), int(values["ep"] * values["etp"])
    gpus = int(values["pp"]) * lcm(inner, experts)
    return (
        f"ep*etp must divide tp*cp*dp ({inner * int(values['dp'])}), got ep {values['ep']}, etp {values['etp']}; "
        f"these degrees with pp {values['pp']} need a multiple of {gpus} GPUs"
    )


LAYOUT_RULES: tuple[Rule, ...] = (
    _legal(
        "degrees-multiply",
        "dp",
        "mesh",
        "tp*cp*pp*dp is at most the number of GPUs",
        "Every rank of the mesh is a GPU; GPUs may stay idle, ranks cannot share one.",
        lambda v: v["tp"] * v["cp"] * v["pp"] * v["dp"] <= v["gpus"],
        lambda v: f"tp*cp*pp*dp must be at most gpus ({v['gpus']}), got {v['tp'] * v['cp'] * v['pp'] * v['dp']}",
        tp=8,
        cp=1,
        pp=2,
        dp=2,
        gpus=16,
    ),
    _legal(
        "tp-divides-heads",
        "tp",
        "mesh",
        "tp divides the attention heads",
        HEADS,
        *divides("tp", "heads"),
        tp=3,
        heads=64,
    ),
    _legal(
        "tp-divides-ffn",
        "tp",
        "mesh",
        "tp divides the width of the MLP",
        SLICES,
        *divides("tp", "ffn"),
        tp=3,
        ffn=28672,
    ),
    _legal(
        "tp-divides-shared-ffn",
        "tp",
        "mesh",
        "tp divides the width of the shared experts",
        SLICES,
        *divides("tp", "shared_ffn"),
        tp=3,
        shared_ffn=2048,
    ),
    _legal(
        "tp-splits-kv-heads",
        "tp",
        "mesh",
        "tp divides the key and value heads or is a multiple of them",
        "Key and value heads are split over the group, or each is repeated on equally many ranks.",
        _heads_divide,
        lambda v: f"tp must divide or be a multiple of kv_heads ({v['kv_heads']}), got {v['tp']}",
        tp=4,
        kv_heads=6,
    ),
    _legal(
        "tp-divides-sequence",
        "tp",
        "mesh",
        "with sequence parallelism tp divides the sequence length",
        "Sequence parallelism deals the tokens of norms and residuals to the ranks of the TP group.",
        lambda v: np.equal(v["sequence_parallel"], 0) | divides("tp", "seq_len")[0](v),
        divides("tp", "seq_len")[1],
        tp=8,
        sequence_parallel=1,
        seq_len=1020,
    ),
    _legal(
        "sequence-parallel-needs-tp",
        "sequence_parallel",
        "layout",
        "sequence parallelism has a TP group of more than one rank",
        "It splits the sequence over the TP group.",
        lambda v: (np.equal(v["sequence_parallel"], 0)) | np.greater(v["tp"], 1),
        lambda v: f"sequence_parallel needs tp above 1, got tp {v['tp']}",
        tp=1,
        sequence_parallel=1,
    ),
    _legal(
        "stages-have-layers",
        "pp",
        "layout",
        "every chunk has a layer; with several chunks a rank, embedding and head may each have one of their own",
        "A rank without work only lengthens the pipeline.",
        lambda v: np.where(
            np.equal(v["vpp"], 1), v["pp"] <= v["layers"], v["pp"] * v["vpp"] <= np.add(v["layers"], 2)
        ).astype(bool),
        lambda v: f"pp*vpp must leave a layer for every chunk ({v['layers']} layers), got pp {v['pp']}, vpp {v['vpp']}",
        pp=8,
        vpp=6,
        layers=40,
    ),
    _legal(
        "stages-hold-all-layers",
        "stages",
        "plan",
        "the layers of all stages add up to the model's",
        "A layer that no stage holds is not trained; old launchers dropped layers without a word.",
        # Where nothing is said of the stages, they hold what there is.
        lambda v: np.equal(v.get("held_layers", v["layers"]), v["layers"]),
        lambda v: f"the layers of all stages must add up to layers ({v['layers']}), got {v['held_layers']}",
        layers=40,
        held_layers=32,
    ),
    _legal(
        "batch-divides",
        "micro_batch_size",
        "layout",
        "dp*micro_batch_size divides the global batch",
        "Every rank takes part in every micro-batch.",
        _batch_divides,
        _batch_message,
        dp=7,
        micro_batch_size=2,
        global_batch=256,
    ),
    _legal(
        "microbatches-make-batch",
        "num_microbatches",
        "layout",
        "dp*micro_batch_size*num_microbatches is the global batch",
        "A step sees every sequence once.",
        # Where the batch does not divide at all, that rule speaks.
        lambda v: (
            ~np.asarray(_batch_divides(v))
            | np.equal(v["dp"] * v["micro_batch_size"] * v["num_microbatches"], v["global_batch"])
        ),
        lambda v: (
            f"dp*micro_batch_size*num_microbatches must be global_batch ({v['global_batch']}), "
            f"got {v['dp']}*{v['micro_batch_size']}*{v['num_microbatches']}"
        ),
        dp=8,
        micro_batch_size=2,
        num_microbatches=18,
        global_batch=256,
    ),
    _legal(
        "interleaving-needs-whole-groups",
        "num_microbatches",
        "layout",
        "interleaved 1F1B has a multiple of pp micro-batches",
        "A chunk works through pp micro-batches before the next chunk of the rank does.",
        lambda v: np.not_equal(v["schedule"], INTERLEAVED) | (np.mod(v["num_microbatches"], v["pp"]) == 0),
        lambda v: (
            f"num_microbatches must be a multiple of pp ({v['pp']}) for interleaved 1F1B, got {v['num_microbatches']}"
        ),
        pp=6,
        num_microbatches=3,
        schedule=INTERLEAVED,
    ),
    _legal(
        "interleaving-needs-pipeline",
        "vpp",
        "layout",
        "several chunks a rank need a pipeline",
        "Chunks of one rank that follow each other are one chunk.",
        lambda v: np.equal(v["vpp"], 1) | np.greater(v["pp"], 1),
        lambda v: f"vpp above 1 needs pp above 1, got vpp {v['vpp']}, pp {v['pp']}",
        pp=1,
        vpp=2,
    ),
    _legal(
        "cp-splits-sequence",
        "cp",
        "mesh",
        "with context parallelism cp*lcm(2, tp) divides the sequence length (2*cp without sequence parallelism)",
        "Each rank holds a head and a tail chunk of the sequence, which causal attention balances; sequence "
        "parallelism deals its tokens out once more.",
        lambda v: np.equal(v["cp"], 1) | (np.mod(v["seq_len"], v["cp"] * _sequence_unit(v)) == 0),
        lambda v: (
            f"cp*{_sequence_unit(v)} must divide seq_len ({v['seq_len']}), got cp {v['cp']}, tp {v['tp']}; "
            f"nearest cp: {nearest_divisors(int(v['cp']), int(v['seq_len'] // _sequence_unit(v)))}"
        ),
        tp=8,
        cp=4,
        sequence_parallel=1,
        seq_len=50_000,
    ),
    _legal(
        "slices-divide-sequence",
        "slices",
        "layout",
        "slices*tp divides the sequence length, with context parallelism slices*2*cp*tp does",
        "Every slice is dealt out like a sequence: a head and a tail chunk to each rank of cp, sharded over tp.",
        lambda v: np.equal(v["slices"], 1) | (np.mod(v["seq_len"], v["slices"] * _shards(v)) == 0),
        lambda v: (
            f"slices*{_shards(v)} (tp, times 2*cp where cp is above 1) must divide seq_len ({v['seq_len']}), "
            f"got slices {v['slices']}"
        ),
        slices=16,
        tp=8,
        cp=1,
        seq_len=8200,
    ),
    _legal(
        "cp-switches-heads",
        "cp_heads",
        "layout",
        "ranks that exchange heads (Ulysses, hierarchical) divide cp, and with tp the heads",
        "An all-to-all trades sequence for heads: each rank is left with whole heads of all tokens of its group.",
        lambda v: (
            np.equal(v["cp_heads"], 1)
            | (
                (np.mod(v["cp"], v["cp_heads"]) == 0)
                & (np.mod(v["heads"], v["tp"] * v["cp_heads"]) == 0)
                & (np.mod(v["kv_heads"], v["tp"] * v["cp_heads"]) == 0)
            )
        ),
        lambda v: (
            f"tp*cp_heads must divide heads ({v['heads']}) and kv_heads ({v['kv_heads']}), cp_heads cp ({v['cp']}), "
            f"got tp {v['tp']}, cp_heads {v['cp_heads']}"
        ),
        tp=4,
        cp=4,
        cp_heads=4,
        heads=64,
        kv_heads=8,
    ),
    _legal(
        "ep-divides-experts",
        "ep",
        "layout",
        "ep divides the experts",
        "Each rank of an EP group holds equally many experts.",
        *divides("ep", "experts"),
        ep=3,
        experts=256,
    ),
    _legal(
        "etp-divides-expert-ffn",
        "etp",
        "layout",
        "etp divides the width of an expert",
        SLICES,
        *divides("etp", "expert_ffn"),
        etp=3,
        expert_ffn=2048,
    ),
    _legal(
        "experts-fill-stage",
        "ep",
        "layout",
        "ep*etp divides the ranks of a pipeline stage, tp*cp*dp",
        "Expert ranks are the ranks of a stage, dealt out anew: the least is pp*lcm(tp*cp, ep*etp) GPUs.",
        lambda v: np.mod(v["tp"] * v["cp"] * v["dp"], v["ep"] * v["etp"]) == 0,
        _experts_message,
        tp=2,
        cp=1,
        pp=6,
        dp=2,
        ep=8,
        etp=1,
    ),
    _legal(
        "tp-inside-domain",
        "tp",
        "mesh",
        "tp divides the innermost network domain, or all GPUs are in it",
        "TP exchanges activations several times a layer: across the domain's edge it would take most of the step.",
        lambda v: (np.mod(v["domain"], v["tp"]) == 0) | (np.less_equal(v["gpus"], v["domain"])),
        lambda v: f"tp must divide the innermost network domain ({v['domain']} GPUs), got {v['tp']}",
        tp=16,
        domain=8,
        gpus=256,
    ),
    _legal(
        "shards-and-replicas-make-dp",
        "dp_shard",
        "layout",
        "dp_shard*dp_replicate is dp",
        "Replicas of shard groups are all the data-parallel ranks.",
        lambda v: np.equal(v["dp_shard"] * v["dp_replicate"], v["dp"]),
        lambda v: f"dp_shard*dp_replicate must be dp ({v['dp']}), got {v['dp_shard']}*{v['dp_replicate']}",
        dp=8,
        dp_shard=4,
        dp_replicate=4,
    ),
)
