"""Conditions on layouts that several launchers share: each function makes the rule of one launcher."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.rules.rule import Rule, Scope, Values, divides
from planner.rules.schedules import SCHEDULES

__all__ = [
    "CONTEXT_TYPES",
    "OPTIMIZERS",
    "PRECISIONS",
    "RANK_ORDERS",
    "Launcher",
    "experts_in_one_piece",
    "experts_on_tensor_ranks",
    "kinds_of_context",
    "kv_heads_divide",
    "microbatches_fill_1f1b",
    "no_experts_apart",
    "no_pipeline",
    "no_sequence_parallel",
    "one_rank_order",
    "one_shard_group",
    "rounds_of_torch",
    "runs_schedules",
    "untied_with_pipeline",
    "vocabulary_divides",
]

CONTEXT_TYPES = ("all_gather", "ring", "ulysses", "hierarchical")
RANK_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
PRECISIONS = ("bf16", "fp8")
"""Data types of matrix products."""
OPTIMIZERS = ("adamw", "adamw-8bit", "precision-aware")
"""AdamW with fp32 moments, with moments of 8 bits, with moments and main gradients in bf16 (Megatron-Core)."""
NAMED = dict(enumerate(SCHEDULES))


@dataclass(frozen=True)
class Launcher:
    """A launcher and the versions that its rules were read in."""

    name: str
    versions: str

    def rule(
        self,
        name: str,
        field: str,
        scope: Scope,
        what: str,
        why: str,
        holds: Callable[[Values], Any],
        message: Callable[[Values], str],
        **example: float,
    ) -> Rule:
        """The rule of this launcher; its id begins with the launcher's name."""
        return Rule(
            f"{self.name}-{name}", "express", self.name, self.versions, field, scope, what, why, holds, message, example
        )


def runs_schedules(launcher: Launcher, why: str, *names: str) -> Rule:
    """Pipelines run these schedules alone."""
    indices = [index for index, name in enumerate(SCHEDULES) if name in names]
    other = next(index for index in range(len(SCHEDULES)) if index not in indices)
    return launcher.rule(
        "runs-schedule",
        "schedule",
        "layout",
        f"pipelines run {' or '.join(names)}",
        why,
        lambda v: np.equal(v["pp"], 1) | np.isin(v["schedule"], indices),
        lambda v: (
            f"schedule must be {' or '.join(names)}, got {dict(enumerate(SCHEDULES)).get(v['schedule'], 'another')}"
        ),
        pp=2,
        schedule=other,
    )


def no_pipeline(launcher: Launcher, why: str) -> Rule:
    """All layers are on every rank."""
    return launcher.rule(
        "has-no-pipelines",
        "pp",
        "mesh",
        "pp is 1",
        why,
        lambda v: np.equal(v["pp"], 1),
        lambda v: f"pp must be 1, got {v['pp']}",
        pp=2,
    )


def no_sequence_parallel(launcher: Launcher, why: str) -> Rule:
    """Norms and residuals are whole on every rank of a TP group."""
    return launcher.rule(
        "has-no-sequence-parallel",
        "sequence_parallel",
        "mesh",
        "norms and residuals are not split over the TP group",
        why,
        lambda v: np.equal(v["sequence_parallel"], 0),
        lambda v: "sequence_parallel must be false, got true",
        sequence_parallel=1,
    )


def kv_heads_divide(launcher: Launcher) -> Rule:
    """Key and value heads are not repeated on several ranks."""
    return launcher.rule(
        "tp-divides-kv-heads",
        "tp",
        "mesh",
        "tp divides the key and value heads",
        "Its tensor parallelism splits the key and value projections by heads and repeats none; Megatron does.",
        *divides("tp", "kv_heads"),
        tp=8,
        kv_heads=4,
    )


def vocabulary_divides(launcher: Launcher) -> Rule:
    """Embedding and head are split as they are."""
    return launcher.rule(
        "tp-divides-vocabulary",
        "tp",
        "mesh",
        "tp divides the vocabulary",
        "It splits embedding and head by rows and does not pad them as Megatron does: pad the vocabulary in the model.",
        *divides("tp", "vocab"),
        tp=4,
        vocab=151_669,
    )


def kinds_of_context(launcher: Launcher, why: str, *names: str) -> Rule:
    """Context parallelism is of these kinds alone."""
    indices = [CONTEXT_TYPES.index(name) for name in names]
    other = next(index for index in range(len(CONTEXT_TYPES)) if index not in indices)
    return launcher.rule(
        "splits-context",
        "cp_type",
        "layout",
        f"context parallelism is of kind {' or '.join(names)}",
        why,
        lambda v: np.equal(v["cp"], 1) | np.isin(v["cp_type"], indices),
        lambda v: f"cp_type must be {' or '.join(names)}, got {CONTEXT_TYPES[int(v['cp_type'])]}",
        cp=2,
        cp_type=other,
    )


def no_experts_apart(launcher: Launcher, why: str) -> Rule:
    """Every rank has slices of all experts."""
    return launcher.rule(
        "has-no-expert-parallel",
        "ep",
        "layout",
        "ep is 1",
        why,
        lambda v: np.equal(v["ep"], 1),
        lambda v: f"ep must be 1, got {v['ep']}",
        ep=8,
    )


def experts_in_one_piece(launcher: Launcher, why: str) -> Rule:
    """A rank has whole experts."""
    return launcher.rule(
        "has-whole-experts",
        "etp",
        "layout",
        "etp is 1",
        why,
        lambda v: np.equal(v["etp"], 1),
        lambda v: f"etp must be 1, got {v['etp']}",
        etp=2,
    )


def experts_on_tensor_ranks(launcher: Launcher) -> Rule:
    """Experts are sliced like all other matrices."""
    return launcher.rule(
        "slices-experts-with-tp",
        "etp",
        "layout",
        "etp is tp in a model with experts",
        "It has one tensor-parallel degree: experts are sliced like every other matrix.",
        lambda v: np.equal(v["moe_layers"], 0) | np.equal(v["etp"], v["tp"]),
        lambda v: f"etp must be tp ({v['tp']}), got {v['etp']}",
        moe_layers=32,
        tp=4,
        etp=1,
    )


def one_rank_order(launcher: Launcher) -> Rule:
    """Pipeline ranks are outermost."""
    return launcher.rule(
        "has-one-rank-order",
        "rank_order",
        "layout",
        f"ranks are in the order {RANK_ORDERS[0]}",
        "Its device mesh has pipeline ranks outermost, and no key changes that.",
        lambda v: np.equal(v["pp"], 1) | np.equal(v["dp"], 1) | np.equal(v["rank_order"], 0),
        lambda v: f"rank_order must be {RANK_ORDERS[0]}, got {RANK_ORDERS[int(v['rank_order'])]}",
        pp=2,
        dp=2,
        rank_order=1,
    )


def one_shard_group(launcher: Launcher, why: str) -> Rule:
    """States are sharded over all data-parallel ranks or none."""
    return launcher.rule(
        "has-one-shard-group",
        "dp_replicate",
        "layout",
        "dp_replicate is 1",
        why,
        lambda v: np.equal(v["dp_replicate"], 1),
        lambda v: f"dp_replicate must be 1, got {v['dp_replicate']}",
        dp_replicate=2,
    )


def untied_with_pipeline(launcher: Launcher) -> Rule:
    """Embedding and head are two matrices where they are on two ranks."""
    return launcher.rule(
        "pipelines-untie-embeddings",
        "pp",
        "mesh",
        "a model with tied embeddings has no pipeline",
        "Embedding and head would be on two ranks; it does not keep their weights equal.",
        lambda v: np.equal(v["pp"], 1) | np.equal(v["tied"], 0),
        lambda v: f"pp must be 1 with tied embeddings, got {v['pp']}",
        pp=2,
        tied=1,
    )


def rounds_of_torch(launcher: Launcher) -> Rule:
    """Interleaved 1F1B and ZB-H1 go through equal rounds of micro-batches, whose size nobody chooses."""
    in_rounds = [SCHEDULES.index(name) for name in ("interleaved", "zb-h1")]

    def size(values: Values) -> Any:
        """Micro-batches of a round: as many rounds as pp fits into their number."""
        count = np.asarray(values["num_microbatches"])
        return count // np.maximum(1, count // values["pp"])

    def holds(values: Values) -> Any:
        group = np.asarray(values["group_size"])
        usual = np.minimum(values["pp"], values["num_microbatches"])
        chosen = np.where(np.equal(group, 0), usual, group)
        own = np.not_equal(values["schedule"], SCHEDULES.index("interleaved")) | np.equal(chosen, size(values))
        whole = np.mod(values["num_microbatches"], size(values)) == 0
        return ~np.isin(values["schedule"], in_rounds) | (own & whole)

    return launcher.rule(
        "goes-through-equal-rounds",
        "group_size",
        "layout",
        "interleaved 1F1B and ZB-H1 have equal rounds of micro-batches, as many as pp fits into their number",
        "torch.distributed.pipelining computes the rounds of these schedules itself and refuses a remainder.",
        holds,
        lambda v: (
            f"interleaved 1F1B or ZB-H1 needs num_microbatches ({v['num_microbatches']}) in equal rounds of "
            f"{size(v)} and group_size to be that, got {v['group_size']} (0: pp {v['pp']})"
        ),
        schedule=SCHEDULES.index("interleaved"),
        pp=4,
        num_microbatches=10,
        group_size=4,
    )


def microbatches_fill_1f1b(launcher: Launcher) -> Rule:
    """1F1B has a micro-batch for every rank."""
    index = SCHEDULES.index("1f1b")
    return launcher.rule(
        "fills-1f1b",
        "num_microbatches",
        "layout",
        "1F1B has at least pp micro-batches",
        "torch.distributed.pipelining refuses fewer; older versions of it hang.",
        lambda v: np.not_equal(v["schedule"], index) | np.greater_equal(v["num_microbatches"], v["pp"]),
        lambda v: f"num_microbatches must be at least pp ({v['pp']}), got {v['num_microbatches']}",
        schedule=index,
        pp=8,
        num_microbatches=1,
    )
