"""Conditions on the choices of stages that several launchers share: each function makes the rule of one launcher."""

from typing import Any

import numpy as np

from planner.rules.express import Launcher
from planner.rules.rule import Rule, Values, divides

__all__ = [
    "OFFLOADED",
    "RECOMPUTE_MODULES",
    "equal_on_stages",
    "even_layers",
    "everything_or_nothing_recomputed",
    "fully_sharded_or_replicated",
    "host_takes_nothing",
    "states_offloaded_together",
]

RECOMPUTE_MODULES = ("norm", "activation", "core_attention", "mla_up_proj", "mlp", "moe", "shared_experts", "full")
OFFLOADED = ("weights", "gradients", "optimizer", "activations")
FIELDS = {"zero": "zero_stage", "recompute": "recompute", "offload": "offload"}
FEW_WORDS = {"zero": "the ZeRO stage", "recompute": "what is recomputed", "offload": "what is offloaded"}


def fully_sharded_or_replicated(launcher: Launcher, why: str) -> Rule:
    """States are sharded as FSDP2 does, or whole on each rank where DDP can be or where there is one copy anyway."""

    def holds(values: Values) -> Any:
        one_copy = np.equal(values["dp"] * values["cp"], 1)
        inner = values["tp"] * values["cp"] * values["pp"]
        alone = np.equal(inner, 1) & np.equal(values["ep"], 1)
        whole = np.equal(values["zero_stage"], 0) & (one_copy | alone)
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
            f"{v['zero_stage']} with tp {v['tp']}, cp {v['cp']}, pp {v['pp']}, ep {v['ep']}, dp {v['dp']}, "
            f"dp_shard {v['dp_shard']}"
        ),
        zero_stage=1,
        tp=1,
        cp=1,
        pp=1,
        ep=1,
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
