"""What launchers can express: each rule on both sides, on numbers and on columns, and what it reads."""

from typing import Any

import numpy as np
import pytest

from planner.flag_values import TARGETS
from planner.rules import LAUNCHERS, OPTIMIZERS, RULES, SCHEDULES, SCOPES, Rule, expressible, refusals

FACTS: dict[str, Any] = {
    "heads": 32,
    "kv_heads": 8,
    "vocab": 128256,
    "shared_ffn": 0,
    "model_layers": 32,
    "moe_layers": 0,
    "windowed_layers": 0,
    "tied": 0,
    "seq_len": 8192,
    "max_seq_len": 8192,
    "gpus": 64,
    "domain": 8,
    "precision": 0,
    "optimizer": 0,
}
MESH = {"tp": 1, "cp": 1, "pp": 1, "dp": 8, "sequence_parallel": 0}
LAYOUT = {
    **{"cp_type": 0, "cp_heads": 1, "cp_ring": 0, "ep": 1, "etp": 1, "vpp": 1, "dp_shard": 8, "dp_replicate": 1},
    **{"rank_order": 0, "micro_batch_size": 1, "num_microbatches": 8, "schedule": SCHEDULES.index("1f1b")},
    "group_size": 0,
}
SPLIT = {"stage_layers": 32}
PLAIN = dict.fromkeys(
    (
        f"recompute_{name}"
        for name in ["norm", "activation", "core_attention", "mla_up_proj", "mlp", "moe", "shared_experts", "full"]
    ),
    0,
)
STAGE = {
    **{"zero_stage": 0, "reshard": 0, "recompute_layers": 0, **PLAIN},
    **dict.fromkeys(("offload_weights", "offload_gradients", "offload_optimizer", "offload_activations"), 0.0),
}
PLAN = {"distinct_zero": 1, "distinct_recompute": 1, "distinct_offload": 1}
OF_SCOPE = dict(zip(SCOPES, (MESH, LAYOUT, SPLIT, STAGE, PLAN), strict=True))
GOOD = {**FACTS, **MESH, **LAYOUT, **SPLIT, **STAGE, **PLAN}

ALL_GATHER, RING, ULYSSES, HIERARCHICAL = range(4)
SHARDED = {"zero_stage": 3, "reshard": 1}
HALF = {"pp": 2, "stage_layers": 16}
FULL = {"recompute_full": 1, "recompute_layers": 32}


PRECISION_AWARE = OPTIMIZERS.index("precision-aware")


def _schedule(name: str) -> dict[str, int]:
    return {"pp": 2, "schedule": SCHEDULES.index(name)}


def _groups(pp: int, count: int, size: int) -> dict[str, int]:
    return {**_schedule("interleaved"), "pp": pp, "num_microbatches": count, "group_size": size}


# What obeys and what breaks each rule, as changes of GOOD; by id, or by the end of it where launchers share the rule.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "runs-schedule": (_schedule("1f1b"), _schedule("slimpipe")),
    "megatron-runs-schedule": (_schedule("interleaved"), _schedule("gpipe")),
    "bridge-runs-schedule": (_schedule("interleaved"), _schedule("gpipe")),
    "deepspeed-runs-schedule": (_schedule("1f1b"), _schedule("interleaved")),
    "nanotron-runs-schedule": (_schedule("gpipe"), _schedule("interleaved")),
    "automodel-runs-schedule": (_schedule("zb-v"), _schedule("dualpipe-v")),
    "maxtext-runs-schedule": (_schedule("breadth-first"), _schedule("1f1b")),
    "groups-fill-pipeline": (_groups(pp=4, count=12, size=4), _groups(pp=4, count=9, size=4)),
    "goes-through-equal-rounds": (_groups(pp=4, count=10, size=5), _groups(pp=4, count=10, size=0)),
    "has-no-pipelines": ({"pp": 1}, {"pp": 2}),
    "has-no-sequence-parallel": ({"tp": 2}, {"tp": 2, "sequence_parallel": 1}),
    "tp-divides-kv-heads": ({"tp": 8}, {"tp": 16}),
    "tp-divides-vocabulary": ({"tp": 8, "vocab": 50304}, {"tp": 2, "vocab": 50257}),
    "splits-context": ({"cp": 2, "cp_type": ALL_GATHER}, {"cp": 2, "cp_type": HIERARCHICAL}),
    "torchtitan-splits-context": ({"cp": 2, "cp_type": ALL_GATHER}, {"cp": 2, "cp_type": RING}),
    "deepspeed-splits-context": ({"cp": 2, "cp_type": ULYSSES}, {"cp": 2, "cp_type": ALL_GATHER}),
    "maxtext-splits-context": ({"cp": 2, "cp_type": RING}, {"cp": 2, "cp_type": ULYSSES}),
    "nanotron-splits-context": ({"cp": 2, "cp_type": RING}, {"cp": 2, "cp_type": ALL_GATHER}),
    "splits-context-of-full-attention": ({"windowed_layers": 16}, {"cp": 2, "windowed_layers": 16}),
    "has-no-expert-parallel": ({"moe_layers": 32}, {"moe_layers": 32, "ep": 8}),
    "has-whole-experts": ({"tp": 2, "moe_layers": 32}, {"tp": 2, "moe_layers": 32, "etp": 2}),
    "slices-experts-with-tp": ({"tp": 2, "moe_layers": 32, "etp": 2}, {"tp": 2, "moe_layers": 32, "etp": 1}),
    "experts-are-data-ranks": ({"ep": 8}, {"ep": 8, "dp_shard": 4, "dp_replicate": 2}),
    "experts-fill-shards": ({"ep": 8}, {"ep": 8, "dp_shard": 4, "dp_replicate": 2}),
    "shards-sequence-beside-experts": (
        {"ep": 8, "tp": 2, "sequence_parallel": 1},
        {"ep": 8, "tp": 2, "sequence_parallel": 0},
    ),
    "has-one-rank-order": ({"rank_order": 1}, {"pp": 2, "rank_order": 1}),
    "has-one-shard-group": ({}, {"dp_shard": 4, "dp_replicate": 2}),
    "replicas-are-of-shards": (
        {"tp": 2, "dp_shard": 4, "dp_replicate": 2},
        {"tp": 2, "dp_shard": 1, "dp_replicate": 8},
    ),
    "pipelines-untie-embeddings": ({"tied": 1}, {"pp": 2, "tied": 1}),
    "fills-1f1b": ({"pp": 8, "num_microbatches": 8}, {"pp": 8, "num_microbatches": 7}),
    "automodel-fills-pipeline": (
        {**_schedule("gpipe"), "pp": 8, "num_microbatches": 8},
        {**_schedule("gpipe"), "pp": 8, "num_microbatches": 7},
    ),
    "fills-pipeline": ({"pp": 8, "num_microbatches": 7}, {"pp": 8, "num_microbatches": 6}),
    "has-whole-rounds": ({"pp": 4, "num_microbatches": 8}, {"pp": 4, "num_microbatches": 6}),
    "has-rotary-positions-for-sequence": ({"seq_len": 8192}, {"seq_len": 8193}),
    "splits-layers-evenly": (HALF, {"pp": 2, "stage_layers": 17}),
    "shards-everything-or-nothing": (SHARDED, {"zero_stage": 1}),
    "shards-optimizer-at-most": ({"zero_stage": 1}, {"zero_stage": 2}),
    "pipelines-keep-gradients-whole": ({"pp": 2, "zero_stage": 1}, {"pp": 2, "zero_stage": 2}),
    "reshards-after-forward": (SHARDED, {"zero_stage": 3, "reshard": 0}),
    "shards-gradients-with-pipeline-outside": (
        {"pp": 2, "rank_order": 1, "zero_stage": 1},
        {"pp": 2, "rank_order": 1, "zero_stage": 2},
    ),
    "keeps-gathered-weights-with-fsdp2": ({"zero_stage": 3}, {"zero_stage": 3, "tied": 1}),
    "keeps-gathered-weights-with-pipeline": ({"zero_stage": 3, "pp": 2}, {"zero_stage": 3, "pp": 1}),
    "recomputes-all-or-nothing": (FULL, {**FULL, "recompute_layers": 31}),
    "recomputes-activation-of-experts": (
        {"recompute_activation": 1, "recompute_layers": 32, "moe_layers": 32},
        {"recompute_activation": 1, "recompute_layers": 32, "moe_layers": 29},
    ),
    "recomputes-full-or-selective": ({**FULL, "recompute_layers": 5}, {**FULL, "recompute_norm": 1}),
    "recomputes-modules-in-every-layer": (
        {"recompute_norm": 1, "recompute_layers": 32},
        {"recompute_norm": 1, "recompute_layers": 31},
    ),
    "offloads-states-together": (
        {**SHARDED, "offload_weights": 1.0, "offload_gradients": 1.0, "offload_optimizer": 1.0},
        {**SHARDED, "offload_optimizer": 1.0},
    ),
    "offloads-sharded-optimizer": (
        {"zero_stage": 1, "offload_optimizer": 1.0},
        {"zero_stage": 0, "offload_optimizer": 1.0},
    ),
    "shards-precision-aware-optimizer": (
        {"zero_stage": 1, "optimizer": PRECISION_AWARE},
        {"zero_stage": 0, "optimizer": PRECISION_AWARE},
    ),
    "offloads-gradients-with-optimizer": (
        {"zero_stage": 1, "offload_gradients": 1.0, "offload_optimizer": 1.0},
        {"zero_stage": 1, "offload_gradients": 1.0},
    ),
    "offloads-sharded-weights": ({**SHARDED, "offload_weights": 1.0}, {"zero_stage": 1, "offload_weights": 1.0}),
    "offloads-checkpoints": ({**FULL, **SHARDED, "offload_activations": 1.0}, {"offload_activations": 1.0}),
    "offloads-activations-of-layers": ({"offload_activations": 0.5}, {**HALF, "offload_activations": 0.5}),
    "offloads-whole-states": ({"offload_optimizer": 1.0}, {"offload_optimizer": 0.5}),
    "keeps-activations-on-device": ({}, {"offload_activations": 0.25}),
    "keeps-everything-on-device": ({}, {"offload_gradients": 0.25}),
    "keeps-weights-and-gradients-on-device": ({}, {"offload_weights": 0.5}),
    "keeps-gradients-and-activations-on-device": ({}, {"offload_gradients": 0.5}),
    "has-one-zero": ({}, {"distinct_zero": 2}),
    "computes-in-bf16": ({}, {"precision": 1}),
    "steps-with-optimizer": ({}, {"optimizer": 2}),
    "megatron-steps-with-optimizer": ({"optimizer": 2}, {"optimizer": 1}),
    "bridge-steps-with-optimizer": ({"optimizer": 2}, {"optimizer": 1}),
    "trainer-steps-with-optimizer": ({"optimizer": 1}, {"optimizer": 2}),
    "has-one-recompute": ({}, {"distinct_recompute": 2}),
    "has-one-offload": ({}, {"distinct_offload": 3}),
}
EXPRESS = [rule for rule in RULES if rule.kind == "express"]
EACH = pytest.mark.parametrize("rule", EXPRESS, ids=lambda rule: rule.id)


def case_of(rule: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rule's own case, else the one of its kind."""
    return CASES.get(rule.id) or CASES[rule.id.removeprefix(rule.launcher + "-")]


@EACH
def test_a_rule_lets_one_side_through_and_refuses_the_other_by_name(rule: Rule) -> None:
    """`refusals` names the rule for what breaks it and does not for what obeys it; the message has the value."""
    obeys, breaks = ({**GOOD, **change} for change in case_of(rule))
    assert rule.id not in dict(refusals(obeys, rule.launcher))
    assert rule.holds(obeys)
    broken = dict(refusals(breaks, rule.launcher))
    assert rule.id in broken
    assert not expressible(breaks, rule.launcher)
    assert "got" in broken[rule.id]
    assert "False" not in broken[rule.id]


@EACH
def test_a_rule_works_on_columns_as_on_numbers(rule: Rule) -> None:
    """A column of both sides gives a column of both answers."""
    rows = [{**GOOD, **change} for change in case_of(rule)]
    columns = {name: np.array([row[name] for row in rows]) for name in GOOD}
    assert np.asarray(rule.holds(columns)).tolist() == [True, False]


@EACH
def test_a_rule_reads_its_scope_alone(rule: Rule) -> None:
    """The search asks while it knows no more than that: nothing later is read."""
    known = dict(FACTS)
    for scope in SCOPES[: SCOPES.index(rule.scope) + 1]:
        known |= OF_SCOPE[scope]
    assert bool(rule.holds(known)) == bool(rule.holds(GOOD))


@pytest.mark.parametrize("launcher", ["megatron", "bridge"])
@pytest.mark.parametrize("states", [{"optimizer": PRECISION_AWARE}, {"offload_optimizer": 0.5}])
@pytest.mark.parametrize(
    ("sharding", "allowed"),
    [
        ({"zero_stage": 0}, False),
        ({"zero_stage": 0, "dp": 1, "dp_shard": 1}, True),
        ({"zero_stage": 0, "dp": 1, "dp_shard": 1, "cp": 2}, False),
        ({"zero_stage": 1}, True),
        ({"zero_stage": 2}, True),
        ({"zero_stage": 3, "reshard": 1}, True),
        ({"zero_stage": 3, "reshard": 0}, False),
    ],
)
def test_megatron_steps_small_or_moved_states_where_its_distributed_optimizer_does(
    launcher: str, states: dict[str, Any], sharding: dict[str, Any], allowed: bool
) -> None:
    """Shards of it, or the only copy; torch's FSDP2, which keeps gathered weights, excludes it."""
    ids = ("shards-precision-aware-optimizer", "offloads-sharded-optimizer")
    broken = dict(refusals({**GOOD, **states, **sharding}, launcher))
    assert any(f"{launcher}-{name}" in broken for name in ids) != allowed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_documented_with_an_example_that_breaks_it(rule: Rule) -> None:
    """What, why, the field, the launcher's version; the message of the example says what it found."""
    assert not np.all(rule.holds(rule.example))
    assert rule.message(rule.example)
    assert rule.what
    assert rule.why.endswith(".")
    assert rule.field
    assert bool(rule.versions) == (rule.kind == "express")


def test_every_case_is_of_some_rule_and_ids_are_unique() -> None:
    """No case is left over, no id stands for two rules, and every launcher that can be a target has rules."""
    ends = {rule.id.removeprefix(rule.launcher + "-") for rule in EXPRESS}
    assert set(CASES) <= ends | {rule.id for rule in EXPRESS}
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert {launcher.name for launcher in LAUNCHERS} == {rule.launcher for rule in EXPRESS}
    assert {*(launcher.name for launcher in LAUNCHERS), "any", "runtime"} == set(TARGETS)


@pytest.mark.parametrize(
    ("launcher", "runs"),
    [
        ("megatron", {"1f1b", "interleaved"}),
        ("bridge", {"1f1b", "interleaved"}),
        ("torchtitan", {"1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-v", "dualpipe-v"}),
        ("automodel", {"1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-v"}),
        ("deepspeed", {"1f1b"}),
        ("nanotron", {"1f1b", "gpipe"}),
        ("maxtext", {"gpipe", "breadth-first"}),
        ("accelerate", set()),
        ("trainer", set()),
        ("axolotl", set()),
        ("runtime", set(SCHEDULES)),
    ],
)
def test_launchers_run_the_schedules_that_they_have(launcher: str, runs: set[str]) -> None:
    """On pipelines; any of them runs a single stage, whatever its schedule is called."""
    every = np.arange(len(SCHEDULES))
    found = expressible({**GOOD, "pp": 2, "schedule": every}, launcher, fields=("pp", "schedule"))
    found = np.broadcast_to(found, len(every))
    assert {name for name, does in zip(SCHEDULES, found, strict=True) if does} == runs
    assert np.all(expressible({**GOOD, "pp": 1, "schedule": every}, launcher, fields=("pp", "schedule")))


def test_our_own_runtime_and_any_refuse_nothing() -> None:
    """They have no rules of their own."""
    for target in ("any", "runtime"):
        assert refusals({}, target) == []
        assert bool(expressible({}, target))
