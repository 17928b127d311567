"""Conditions that several launchers share: each function makes the rule of one launcher."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.request import SCHEDULES
from planner.rules.rule import Rule, Scope, Values, divides

__all__ = [
    "CONTEXT_TYPES",
    "OFFLOADED",
    "RANK_ORDERS",
    "RECOMPUTE_MODULES",
    "Launcher",
    "equal_on_stages",
    "even_layers",
    "everything_or_nothing_recomputed",
    "experts_in_one_piece",
    "experts_on_tensor_ranks",
    "fully_sharded_or_replicated",
    "host_takes_nothing",
    "kinds_of_context",
    "kv_heads_divide",
    "microbatches_fill_1f1b",
    "no_experts_apart",
    "no_pipeline",
    "no_sequence_parallel",
    "one_rank_order",
    "one_shard_group",
    "runs_schedules",
    "states_offloaded_together",
    "untied_with_pipeline",
    "vocabulary_divides",
]

CONTEXT_TYPES = ("all_gather", "ring", "ulysses", "hierarchical")
RANK_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
RECOMPUTE_MODULES = ("norm", "activation", "core_attention", "mla_up_proj", "mlp", "moe", "shared_experts", "full")
NAMED = dict(enumerate(SCHEDULES))
OFFLOADED = ("weights", "gradients", "optimizer", "activations")
FIELDS = {"zero": "zero_stage", "recompute": "recompute", "offload": "offload"}
FEW_WORDS = {"zero": "the ZeRO stage", "recompute": "what is recomputed", "offload": "what is offloaded"}


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


def fully_sharded_or_replicated(launcher: Launcher, why: str) -> Rule:
    """States are sharded as FSDP2 does, or whole on each rank where DDP can be or where there is one copy anyway."""

    def holds(values: Values) -> Any:
        one_copy = np.equal(values["dp"] * values["cp"], 1)
        inner = values["tp"] * values["cp"] * values["pp"]
        whole = np.equal(values["zero_stage"], 0) & (one_copy | np.equal(inner, 1))
        sharded = np.equal(values["zero_stage"], 3) & np.greater(values["dp_shard"] * values["cp"], 1)
        return whole | sharded

    return launcher.rule(
        "shards-everything-or-nothing",
        "zero_stage",
        "stage",
        "the ZeRO stage is 3 (FSDP2), or 0 without other parallelism (DDP) or where there is one copy of the states",
        why,
        holds,
        lambda v: (
            "zero_stage must be 3 with dp_shard*cp above 1, or 0 with dp alone or without dp and cp; got "
            f"{v['zero_stage']} with tp {v['tp']}, cp {v['cp']}, pp {v['pp']}, dp {v['dp']}, dp_shard {v['dp_shard']}"
        ),
        zero_stage=1,
        tp=1,
        cp=1,
        pp=1,
        dp=8,
        dp_shard=8,
    )


def everything_or_nothing_recomputed(launcher: Launcher, why: str) -> Rule:
    """Every layer is recomputed in full, or none is at all."""
    selective = [f"recompute_{module}" for module in RECOMPUTE_MODULES if module != "full"]

    def holds(values: Values) -> Any:
        part = np.any([np.not_equal(values[name], 0) for name in selective], axis=0)
        every = np.equal(values["recompute_layers"], values["stage_layers"])
        return ~part & (np.equal(values["recompute_full"], 0) | every)

    def message(values: Values) -> str:
        modules = ", ".join(name for name in RECOMPUTE_MODULES if values[f"recompute_{name}"])
        layers = f"{values['recompute_layers']} of {values['stage_layers']} layers"
        return f"recompute must be full on every layer or nothing, got {modules} on {layers}"

    return launcher.rule(
        "recomputes-all-or-nothing",
        "recompute",
        "stage",
        "every layer is recomputed in full, or nothing is",
        why,
        holds,
        message,
        **dict.fromkeys(selective, 0) | {"recompute_norm": 1, "recompute_full": 0},
        recompute_layers=20,
        stage_layers=20,
    )


def even_layers(launcher: Launcher, why: str) -> Rule:
    """Stages have equally many layers, and chunks have."""

    def holds(values: Values) -> Any:
        even = np.equal(values["stage_layers"] * values["pp"], values["model_layers"])
        return even & (np.mod(values["stage_layers"], values["vpp"]) == 0)

    return launcher.rule(
        "splits-layers-evenly",
        "layers",
        "split",
        "all stages, and all chunks of a stage, have equally many layers",
        why,
        holds,
        lambda v: (
            f"a stage must have {v['model_layers']}/{v['pp']} layers, a multiple of vpp {v['vpp']}; "
            f"got {v['stage_layers']}; nearest pp: {divides('pp', 'model_layers')[1](v).rpartition('nearest: ')[2]}"
        ),
        stage_layers=21,
        model_layers=80,
        pp=4,
        vpp=1,
    )


def states_offloaded_together(launcher: Launcher, why: str) -> Rule:
    """Weights, gradients and optimizer states are all on the host or all on the device."""

    def holds(values: Values) -> Any:
        weights, gradients, optimizer = (values[f"offload_{name}"] for name in ("weights", "gradients", "optimizer"))
        whole = np.equal(weights, 0) | (np.equal(weights, 1) & np.equal(values["zero_stage"], 3))
        return whole & np.equal(weights, gradients) & np.equal(weights, optimizer)

    return launcher.rule(
        "offloads-states-together",
        "offload",
        "stage",
        "weights, gradients and optimizer states are on the host all together (under FSDP2) or not at all",
        why,
        holds,
        lambda v: (
            "offload of weights, gradients and optimizer must be 0 or, with ZeRO-3, 1 for all three; got "
            f"{v['offload_weights']:g}, {v['offload_gradients']:g}, {v['offload_optimizer']:g}, ZeRO-{v['zero_stage']}"
        ),
        offload_weights=0,
        offload_gradients=0,
        offload_optimizer=0.5,
        zero_stage=3,
    )


def host_takes_nothing(launcher: Launcher, *what: str) -> Rule:
    """Some states or activations cannot leave the device."""
    words = " and ".join(what)
    return launcher.rule(
        f"keeps-{'everything' if len(what) == len(OFFLOADED) else '-and-'.join(what)}-on-device",
        "offload",
        "stage",
        f"{words} stay on the device",
        "It has no key that moves them to the host.",
        lambda v: np.all([np.equal(v[f"offload_{name}"], 0) for name in what], axis=0),
        lambda v: f"offload of {words} must be 0, got {', '.join(format(v[f'offload_{n}'], 'g') for n in what)}",
        **{f"offload_{name}": 0.5 for name in what},
    )


def equal_on_stages(launcher: Launcher, why: str, *fields: str) -> tuple[Rule, ...]:
    """Stages choose alike: of each field (zero, recompute, offload) there is one value."""
    return tuple(
        launcher.rule(
            f"has-one-{field}",
            FIELDS[field],
            "plan",
            f"{FEW_WORDS[field]} is the same on all stages",
            why,
            lambda v, field=field: np.equal(v[f"distinct_{field}"], 1),  # type: ignore[misc]
            lambda v, field=field: (
                f"{FEW_WORDS[field]} must be the same on all stages, "  # type: ignore[misc]
                f"got {v[f'distinct_{field}']} different"
            ),
            **{f"distinct_{field}": 2},
        )
        for field in fields
    )
