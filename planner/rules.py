"""What a layout must obey: one row a rule, one function of named values that works on arrays and on scalars.

The search masks its columns with these functions, a check evaluates them on one configuration, and the messages name
the nearest legal values. There is no second table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["FLEXIBLE", "RULES", "SCHEDULES", "Rule", "expressible", "legal", "violations"]

SCHEDULES = (
    "1f1b",
    "interleaved",
    "gpipe",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "terapipe",
    "seq1f1b",
    "slimpipe",
)
"""Pipeline schedules that layouts can have."""
FLEXIBLE = "flexible"
"""Interleaving with groups of any size, and with fewer micro-batches than ranks, where it is asked for by this name."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """One condition. `holds` is true (elementwise) where it is obeyed; `message` says what is wrong, what near."""

    id: str
    kind: Literal["legal", "express"]
    launcher: str
    holds: Callable[[Values], Any]
    message: Callable[[Values], str]


# What torch.distributed.pipelining has.
TORCH = ("1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-v", "dualpipe-v")


def nearest_divisors(value: int, of: int) -> str:
    """The divisors of `of` next to `value`, as text: "4 or 8"."""
    divisors = [d for d in range(1, of + 1) if of % d == 0] if of <= 1_000_000 else [1]
    below = [d for d in divisors if d <= value][-1:]
    above = [d for d in divisors if d > value][:1]
    return " or ".join(str(d) for d in (*below, *above))


def _divides(field: str, of: str) -> tuple[Callable[[Values], Any], Callable[[Values], str]]:
    def holds(values: Values) -> Any:
        return np.mod(values[of], values[field]) == 0

    def message(values: Values) -> str:
        near = nearest_divisors(int(values[field]), int(values[of]))
        return f"{field} must divide {of} ({values[of]}), got {values[field]}; nearest: {near}"

    return holds, message


def _heads_divide(values: Values) -> Any:
    kv_heads, tp = values["kv_heads"], values["tp"]
    return (np.mod(kv_heads, tp) == 0) | (np.mod(tp, kv_heads) == 0)


def _shards(values: Values) -> Any:
    """Equal parts that ranks cut a sequence into: a head and a tail chunk each of cp ranks, sharded over tp."""
    return values["tp"] * np.where(np.equal(values["cp"], 1), 1, 2 * np.asarray(values["cp"]))


def _batch_divides(values: Values) -> Any:
    return np.mod(values["global_batch"], values["dp"] * values["micro_batch_size"]) == 0


def _runs(launcher: str, *names: str) -> Rule:
    """A launcher runs these pipeline schedules; none: it has no pipelines."""
    indices = [SCHEDULES.index(name) for name in names]
    return Rule(
        f"{launcher}-runs-schedule",
        "express",
        launcher,
        lambda v: np.equal(v["pp"], 1) | np.isin(v["schedule"], indices),
        lambda v: f"{launcher} runs {', '.join(names) or 'no pipelines'}, got {SCHEDULES[int(v['schedule'])]}",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "degrees-multiply",
        "legal",
        "any",
        lambda v: v["tp"] * v["cp"] * v["pp"] * v["dp"] <= v["gpus"],
        lambda v: f"tp*cp*pp*dp must be at most gpus ({v['gpus']}), got {v['tp'] * v['cp'] * v['pp'] * v['dp']}",
    ),
    Rule("tp-divides-heads", "legal", "any", *_divides("tp", "heads")),
    Rule("tp-divides-ffn", "legal", "any", *_divides("tp", "ffn")),
    Rule("tp-divides-shared-ffn", "legal", "any", *_divides("tp", "shared_ffn")),
    Rule(
        "tp-splits-kv-heads",
        "legal",
        "any",
        _heads_divide,
        lambda v: f"tp must divide or be a multiple of kv_heads ({v['kv_heads']}), got {v['tp']}",
    ),
    Rule("tp-divides-sequence", "legal", "any", *_divides("tp", "seq_len")),
    Rule(
        "sequence-parallel-needs-tp",
        "legal",
        "any",
        lambda v: (np.equal(v["sequence_parallel"], 0)) | np.greater(v["tp"], 1),
        lambda v: f"sequence_parallel needs tp above 1, got tp {v['tp']}",
    ),
    Rule(
        "stages-have-layers",
        "legal",
        "any",
        # The embedding and the head may each have a chunk of their own; with one chunk a rank, each has a layer.
        lambda v: np.where(
            np.equal(v["vpp"], 1), v["pp"] <= v["layers"], v["pp"] * v["vpp"] <= np.add(v["layers"], 2)
        ).astype(bool),
        lambda v: f"pp*vpp must leave a layer for every chunk ({v['layers']} layers), got pp {v['pp']}, vpp {v['vpp']}",
    ),
    Rule(
        "batch-divides",
        "legal",
        "any",
        _batch_divides,
        lambda v: (
            f"dp*micro_batch_size must divide global_batch ({v['global_batch']}), "
            f"got {v['dp']}*{v['micro_batch_size']}; nearest: "
            f"{nearest_divisors(int(v['dp'] * v['micro_batch_size']), int(v['global_batch']))}"
        ),
    ),
    Rule(
        "microbatches-make-batch",
        "legal",
        "any",
        # Where the batch does not divide at all, that rule speaks.
        lambda v: (
            ~np.asarray(_batch_divides(v))
            | np.equal(v["dp"] * v["micro_batch_size"] * v["num_microbatches"], v["global_batch"])
        ),
        lambda v: (
            f"dp*micro_batch_size*num_microbatches must be global_batch ({v['global_batch']}), "
            f"got {v['dp']}*{v['micro_batch_size']}*{v['num_microbatches']}"
        ),
    ),
    Rule(
        "interleaving-needs-whole-groups",
        "legal",
        "any",
        lambda v: (
            np.not_equal(v["schedule"], SCHEDULES.index("interleaved")) | (np.mod(v["num_microbatches"], v["pp"]) == 0)
        ),
        lambda v: (
            f"num_microbatches must be a multiple of pp ({v['pp']}) for interleaved 1F1B, got {v['num_microbatches']}"
        ),
    ),
    Rule(
        "interleaving-needs-pipeline",
        "legal",
        "any",
        lambda v: np.equal(v["vpp"], 1) | np.greater(v["pp"], 1),
        lambda v: f"vpp above 1 needs pp above 1, got vpp {v['vpp']}, pp {v['pp']}",
    ),
    Rule(
        "cp-splits-sequence",
        "legal",
        "any",
        # Each rank holds a head and a tail chunk of the sequence, which TP shards once more.
        lambda v: np.equal(v["cp"], 1) | (np.mod(v["seq_len"], 2 * v["cp"] * v["tp"]) == 0),
        lambda v: f"2*cp*tp must divide seq_len ({v['seq_len']}), got cp {v['cp']}, tp {v['tp']}",
    ),
    Rule(
        "slices-divide-sequence",
        "legal",
        "any",
        lambda v: np.equal(v["slices"], 1) | (np.mod(v["seq_len"], v["slices"] * _shards(v)) == 0),
        lambda v: (
            f"slices*{_shards(v)} (tp, times 2*cp where cp is above 1) must divide seq_len ({v['seq_len']}), "
            f"got slices {v['slices']}"
        ),
    ),
    Rule(
        "cp-switches-heads",
        "legal",
        "any",
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
    ),
    Rule("ep-divides-experts", "legal", "any", *_divides("ep", "experts")),
    Rule("etp-divides-expert-ffn", "legal", "any", *_divides("etp", "expert_ffn")),
    Rule(
        "experts-fill-stage",
        "legal",
        "any",
        # min GPUs = PP * max(TP*CP, EP*ETP): expert ranks are the ranks of a stage, dealt out anew.
        lambda v: np.mod(v["tp"] * v["cp"] * v["dp"], v["ep"] * v["etp"]) == 0,
        lambda v: f"ep*etp must divide tp*cp*dp ({v['tp'] * v['cp'] * v['dp']}), got ep {v['ep']}, etp {v['etp']}",
    ),
    Rule(
        "tp-inside-domain",
        "legal",
        "any",
        lambda v: (np.mod(v["domain"], v["tp"]) == 0) | (np.less_equal(v["gpus"], v["domain"])),
        lambda v: f"tp must divide the innermost network domain ({v['domain']} GPUs), got {v['tp']}",
    ),
    Rule(
        "shards-and-replicas-make-dp",
        "legal",
        "any",
        lambda v: np.equal(v["dp_shard"] * v["dp_replicate"], v["dp"]),
        lambda v: f"dp_shard*dp_replicate must be dp ({v['dp']}), got {v['dp_shard']}*{v['dp_replicate']}",
    ),
    # Which schedules a launcher runs: as of Megatron-core 0.19, torchtitan 0.3 and AutoModel 0.7 (with the schedules of
    # torch.distributed.pipelining), DeepSpeed 0.19, nanotron of April 2026, MaxText 0.2.5 (circular pipelines).
    _runs("megatron", "1f1b", "interleaved"),
    _runs("bridge", "1f1b", "interleaved"),
    _runs("torchtitan", *TORCH),
    _runs("automodel", *TORCH),
    _runs("deepspeed", "1f1b"),
    _runs("nanotron", "1f1b", "gpipe"),
    _runs("maxtext", "gpipe", "breadth-first"),
    _runs("accelerate"),
    _runs("trainer"),
    _runs("axolotl"),
    _runs("runtime", *SCHEDULES),
)


def legal(values: Values, *ids: str) -> Any:
    """Boolean column: true where the rules named by `ids` (all of them when none is named) are obeyed."""
    result: Any = True
    for rule in _legal_rules(ids):
        result = np.logical_and(result, rule.holds(values))
    return result


def expressible(values: Values, launcher: str) -> Any:
    """Boolean column: true where a launcher can express what it is given."""
    result: Any = True
    for rule in RULES:
        if rule.kind == "express" and rule.launcher == launcher:
            result = np.logical_and(result, rule.holds(values))
    return result


def violations(values: Values, *ids: str) -> list[tuple[str, str]]:
    """(id, message) of each legal rule that one configuration breaks, of those named by `ids` (all of them if none)."""
    broken = (rule for rule in _legal_rules(ids) if not np.all(rule.holds(values)))
    return [(rule.id, rule.message(values)) for rule in broken]


def _legal_rules(ids: tuple[str, ...]) -> list[Rule]:
    return [rule for rule in RULES if rule.kind == "legal" and (not ids or rule.id in ids)]
