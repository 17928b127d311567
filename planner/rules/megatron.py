"""What Megatron-LM (`pretrain_gpt.py`) and Megatron Bridge can express."""

from typing import Any

import numpy as np

from planner.rules.choices import RECOMPUTE_MODULES, equal_on_stages, host_takes_nothing
from planner.rules.express import OPTIMIZERS, RANK_ORDERS, Launcher, runs_schedules
from planner.rules.rule import Rule, Values
from planner.rules.schedules import SCHEDULES

__all__ = ["BRIDGE", "BRIDGE_RULES", "MEGATRON", "MEGATRON_RULES"]

MEGATRON = Launcher("megatron", "megatron-core 0.19")
BRIDGE = Launcher("bridge", "Megatron Bridge 0.6")
PRECISION_AWARE = OPTIMIZERS.index("precision-aware")
SELECTIVE = tuple(f"recompute_{module}" for module in RECOMPUTE_MODULES if module != "full")


def _recomputes_something(values: Values) -> Any:
    return np.any([np.not_equal(values[name], 0) for name in (*SELECTIVE, "recompute_full")], axis=0)


def _on_distributed_optimizer(values: Values) -> Any:
    """Where Megatron's distributed optimizer steps: sharded states other than FSDP2's, or one copy of them."""
    by_fsdp2 = np.equal(values["zero_stage"], 3) & np.equal(values["reshard"], 0)
    sharded = np.greater_equal(values["zero_stage"], 1) & ~by_fsdp2
    return sharded | (np.equal(values["zero_stage"], 0) & np.equal(values["dp"] * values["cp"], 1))


def _selective(values: Values) -> Any:
    return np.any([np.not_equal(values[name], 0) for name in SELECTIVE], axis=0)


SHARDED = "zero_stage 1 or more (3 with reshard_after_forward), or 0 with dp and cp 1"


def _sharding(values: Values) -> str:
    kept = ", reshard_after_forward false" if values["zero_stage"] == 3 and not values["reshard"] else ""
    return f"zero_stage {values['zero_stage']}{kept} with dp {values['dp']}, cp {values['cp']}"


def _recompute_rules(launcher: Launcher) -> tuple[Rule, ...]:
    nothing = {**dict.fromkeys(SELECTIVE, 0), "recompute_full": 0}
    return (
        launcher.rule(
            "recomputes-activation-of-experts",
            "recompute",
            "stage",
            "activation functions alone are recomputed only where every MLP is one of routed experts",
            "moe_act is of routed experts; of a dense MLP or of shared experts only the whole MLP can be recomputed.",
            lambda v: (
                np.equal(v["recompute_activation"], 0)
                | (np.equal(v["moe_layers"], v["model_layers"]) & np.equal(v["shared_ffn"], 0))
            ),
            lambda v: (
                f"recompute of activation needs experts in every layer and no shared ones, got {v['moe_layers']} of "
                f"{v['model_layers']} layers with experts; mlp recomputes the whole MLP of a dense layer"
            ),
            recompute_activation=1,
            moe_layers=0,
            model_layers=80,
            shared_ffn=0,
        ),
        launcher.rule(
            "recomputes-full-or-selective",
            "recompute",
            "stage",
            "layers are recomputed in full, or some modules of them are, not both",
            "--recompute-granularity is full or selective for the whole job.",
            lambda v: np.equal(v["recompute_full"], 0) | ~_selective(v),
            lambda v: "recompute must be full or a set of modules, got both",
            **nothing | {"recompute_full": 1, "recompute_norm": 1},
        ),
        launcher.rule(
            "recomputes-modules-in-every-layer",
            "recompute",
            "stage",
            "modules are recomputed in every layer of a stage",
            "--recompute-num-layers belongs to full recompute; selective recompute has no number of layers.",
            lambda v: ~_selective(v) | np.equal(v["recompute_layers"], v["stage_layers"]),
            lambda v: (
                f"selective recompute must cover all {v['stage_layers']} layers of a stage, got {v['recompute_layers']}"
            ),
            **nothing | {"recompute_norm": 1, "recompute_layers": 10, "stage_layers": 20},
        ),
    )


def _offload_rules(launcher: Launcher) -> tuple[Rule, ...]:
    def activations_may_leave(values: Values) -> Any:
        share, layers = values["offload_activations"], values["stage_layers"]
        whole = np.less(share, 1) & np.equal(np.mod(share * layers, 1), 0)
        return np.equal(share, 0) | (np.equal(values["pp"], 1) & ~_recomputes_something(values) & whole)

    return (
        host_takes_nothing(launcher, "weights", "gradients"),
        launcher.rule(
            "offloads-sharded-optimizer",
            "offload",
            "stage",
            "optimizer states leave the device only where the distributed optimizer holds them",
            "--optimizer-cpu-offload needs --use-precision-aware-optimizer, a part of the distributed optimizer, which "
            "torch's FSDP2 excludes.",
            lambda v: np.equal(v["offload_optimizer"], 0) | _on_distributed_optimizer(v),
            lambda v: f"offload of optimizer needs {SHARDED}, got {_sharding(v)}",
            offload_optimizer=1.0,
            zero_stage=0,
            reshard=0,
            dp=8,
            cp=1,
        ),
        launcher.rule(
            "offloads-activations-of-layers",
            "offload",
            "stage",
            "activations leave the device only without pipeline and recompute, those of whole layers, not of all",
            "--cpu-offloading-num-layers is refused with either, and must be less than the layers.",
            activations_may_leave,
            lambda v: (
                "offload of activations needs pp 1, nothing recomputed and a whole number of layers below "
                f"{v['stage_layers']}; got {v['offload_activations']:g} with pp {v['pp']}"
            ),
            **dict.fromkeys((*SELECTIVE, "recompute_full"), 0) | {"offload_activations": 0.5, "pp": 2},
            stage_layers=40,
        ),
    )


def _steps_precision_aware_where_sharded(launcher: Launcher) -> Rule:
    """The precision-aware optimizer steps on the shards of the distributed optimizer."""
    return launcher.rule(
        "shards-precision-aware-optimizer",
        "zero_stage",
        "stage",
        "the precision-aware optimizer has states that the distributed optimizer holds",
        "--use-precision-aware-optimizer is refused without --use-distributed-optimizer, which torch's FSDP2 excludes.",
        lambda v: np.not_equal(v["optimizer"], PRECISION_AWARE) | _on_distributed_optimizer(v),
        lambda v: f"the precision-aware optimizer needs {SHARDED}, got {_sharding(v)}",
        optimizer=PRECISION_AWARE,
        zero_stage=0,
        reshard=0,
        dp=8,
        cp=1,
    )


INTERLEAVED = SCHEDULES.index("interleaved")


def _groups_of_pipeline(launcher: Launcher) -> Rule:
    """Interleaved micro-batches come in groups of pp or more, the last one too."""

    def group(values: Values) -> Any:
        return np.where(np.equal(values["group_size"], 0), values["pp"], values["group_size"])

    def holds(values: Values) -> Any:
        count, pp, size = values["num_microbatches"], values["pp"], group(values)
        last = np.mod(count, size)
        fits = np.greater_equal(size, pp) & np.less_equal(size, count) & ((last == 0) | np.greater_equal(last, pp))
        return np.not_equal(values["schedule"], INTERLEAVED) | fits

    return launcher.rule(
        "groups-fill-pipeline",
        "group_size",
        "layout",
        "groups of interleaved micro-batches have at least pp, the last one too",
        "Its interleaved schedule refuses smaller groups.",
        holds,
        lambda v: (
            f"group_size must be between pp ({v['pp']}) and num_microbatches ({v['num_microbatches']}) and leave no "
            f"last group below pp, got {group(v)}"
        ),
        schedule=INTERLEAVED,
        pp=4,
        num_microbatches=3,
        group_size=3,
    )


def _rules(launcher: Launcher, keeps_weights: Rule) -> tuple[Rule, ...]:
    return (
        runs_schedules(
            launcher,
            "pp above 1 runs 1F1B, several chunks a rank the interleaved form; zero-bubble schedules are not in it.",
            "1f1b",
            "interleaved",
        ),
        launcher.rule(
            "shards-sequence-beside-experts",
            "sequence_parallel",
            "layout",
            "expert parallelism beside tensor parallelism has sequence parallelism",
            "Its token dispatchers expect each TP rank to hold other tokens.",
            lambda v: np.equal(v["ep"], 1) | np.equal(v["tp"], 1) | np.equal(v["sequence_parallel"], 1),
            lambda v: f"sequence_parallel must be true with ep {v['ep']} and tp {v['tp']}, got false",
            ep=8,
            tp=2,
            sequence_parallel=0,
        ),
        _groups_of_pipeline(launcher),
        keeps_weights,
        *_recompute_rules(launcher),
        *_offload_rules(launcher),
        _steps_precision_aware_where_sharded(launcher),
        *equal_on_stages(launcher, "It is a flag, one value for all ranks.", "zero", "recompute", "offload"),
    )


KEEPS_WEIGHTS = MEGATRON.rule(
    "keeps-gathered-weights-with-fsdp2",
    "reshard_after_forward",
    "stage",
    "ZeRO-3 without resharding after the forward has no pipeline, no experts apart, no replicas, no tied embeddings",
    "Megatron-FSDP frees gathered weights; --torch-fsdp2-no-reshard-after-forward keeps them, under these conditions.",
    lambda v: (
        np.less(v["zero_stage"], 3)
        | np.equal(v["reshard"], 1)
        | (np.equal(v["pp"] * v["ep"] * v["dp_replicate"], 1) & np.equal(v["tied"], 0))
    ),
    lambda v: (
        "reshard_after_forward must be true under ZeRO-3 unless pp, ep and dp_replicate are 1 and embeddings are not "
        f"tied, got false with pp {v['pp']}, ep {v['ep']}, dp_replicate {v['dp_replicate']}"
    ),
    zero_stage=3,
    reshard=0,
    pp=2,
    ep=1,
    dp_replicate=1,
    tied=0,
)
FREES_WEIGHTS = BRIDGE.rule(
    "reshards-after-forward",
    "reshard_after_forward",
    "stage",
    "ZeRO-3 frees gathered weights after the forward pass",
    "Its container has no key that keeps them, neither with Megatron-FSDP nor with PyTorch's.",
    lambda v: np.less(v["zero_stage"], 3) | np.equal(v["reshard"], 1),
    lambda v: "reshard_after_forward must be true under ZeRO-3, got false",
    zero_stage=3,
    reshard=0,
)
MEGATRON_RULES = _rules(MEGATRON, KEEPS_WEIGHTS)
BRIDGE_RULES = (
    *_rules(BRIDGE, FREES_WEIGHTS),
    BRIDGE.rule(
        "shards-gradients-with-pipeline-outside",
        "rank_order",
        "stage",
        "above ZeRO-1 pipeline ranks are outermost",
        "use_tp_pp_dp_mapping is refused with Megatron-FSDP.",
        lambda v: np.less(v["zero_stage"], 2) | np.equal(v["rank_order"], 0),
        lambda v: f"rank_order must be {RANK_ORDERS[0]} above ZeRO-1, got {RANK_ORDERS[int(v['rank_order'])]}",
        zero_stage=3,
        rank_order=1,
    ),
)
