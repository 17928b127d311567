"""Each rule on both sides, on scalars and on arrays."""

from typing import Any

import numpy as np
import pytest

from planner.request import SCHEDULES
from planner.rules import RULES, legal, nearest_divisors, violations

GOOD: dict[str, Any] = {
    "gpus": 64,
    "domain": 8,
    "tp": 4,
    "cp": 2,
    "cp_heads": 2,
    "cp_ring": 0,
    "ep": 4,
    "etp": 4,
    "pp": 2,
    "vpp": 2,
    "dp": 4,
    "dp_shard": 2,
    "dp_replicate": 2,
    "sequence_parallel": 1,
    "micro_batch_size": 2,
    "num_microbatches": 8,
    "global_batch": 64,
    "layers": 8,
    "held_layers": 8,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 128,
    "experts": 8,
    "expert_ffn": 64,
    "shared_ffn": 32,
    "seq_len": 1024,
    "slices": 4,
    "schedule": SCHEDULES.index("interleaved"),
}
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("degrees-multiply", {"gpus": 63}, "at most gpus (63), got 64"),
    ("tp-divides-heads", {"heads": 30, "cp_heads": 1}, "tp must divide heads (30), got 4; nearest: 3 or 5"),
    ("tp-divides-ffn", {"ffn": 126}, "tp must divide ffn (126), got 4; nearest: 3 or 6"),
    ("tp-divides-shared-ffn", {"shared_ffn": 30}, "tp must divide shared_ffn (30), got 4; nearest: 3 or 5"),
    ("tp-splits-kv-heads", {"kv_heads": 6, "cp_heads": 1}, "kv_heads (6), got 4"),
    (
        "tp-divides-sequence",
        {"seq_len": 1022, "cp": 1, "cp_heads": 1, "slices": 1},
        "tp must divide seq_len (1022), got 4; nearest: 2 or 7",
    ),
    ("sequence-parallel-needs-tp", {"tp": 1, "etp": 1}, "needs tp above 1, got tp 1"),
    ("stages-have-layers", {"vpp": 6}, "(8 layers), got pp 2, vpp 6"),
    (
        "stages-have-layers",
        {"vpp": 1, "pp": 9, "num_microbatches": 9, "global_batch": 72, "gpus": 999},
        "(8 layers), got pp 9, vpp 1",
    ),
    ("stages-hold-all-layers", {"held_layers": 6}, "must add up to layers (8), got 6"),
    ("batch-divides", {"micro_batch_size": 3}, "global_batch (64), got 4*3; nearest: 8 or 16"),
    ("microbatches-make-batch", {"num_microbatches": 4}, "must be global_batch (64), got 4*2*4"),
    (
        "interleaving-needs-whole-groups",
        {"num_microbatches": 7, "global_batch": 56},
        "multiple of pp (2) for interleaved 1F1B, got 7",
    ),
    ("interleaving-needs-pipeline", {"pp": 1}, "vpp above 1 needs pp above 1, got vpp 2, pp 1"),
    (
        "cp-splits-sequence",
        {"seq_len": 1028, "slices": 1},
        "cp*4 must divide seq_len (1028), got cp 2, tp 4; nearest cp: 1 or 257",
    ),
    (
        "slices-divide-sequence",
        {"slices": 128},
        "slices*16 (tp, times 2*cp where cp is above 1) must divide seq_len (1024), got slices 128",
    ),
    (
        "cp-switches-heads",
        {"heads": 36},
        "must divide heads (36) and kv_heads (8), cp_heads cp (2), got tp 4, cp_heads 2",
    ),
    ("cp-switches-heads", {"kv_heads": 4}, "must divide heads (32) and kv_heads (4)"),
    ("cp-switches-heads", {"cp_heads": 4, "kv_heads": 16}, "cp_heads cp (2), got tp 4, cp_heads 4"),
    ("ep-divides-experts", {"experts": 6}, "ep must divide experts (6), got 4; nearest: 3 or 6"),
    ("etp-divides-expert-ffn", {"expert_ffn": 62}, "etp must divide expert_ffn (62), got 4; nearest: 2 or 31"),
    ("experts-fill-stage", {"ep": 8, "etp": 8}, "ep*etp must divide tp*cp*dp (32), got ep 8, etp 8"),
    ("tp-inside-domain", {"domain": 6}, "must divide the innermost network domain (6 GPUs), got 4"),
    ("tp-inside-domain", {"domain": 2}, "must divide the innermost network domain (2 GPUs), got 4"),
    ("shards-and-replicas-make-dp", {"dp_shard": 4}, "must be dp (4), got 4*2"),
]


def test_a_legal_configuration_breaks_nothing() -> None:
    """No rule complains."""
    assert violations(GOOD) == []
    assert bool(legal(GOOD))


@pytest.mark.parametrize(("rule", "change", "message"), BROKEN)
def test_a_broken_rule_names_field_value_and_what_is_allowed(rule: str, change: dict[str, Any], message: str) -> None:
    """Only that rule is broken, and its message says what it found and what is near."""
    broken = violations({**GOOD, **change})
    assert [name for name, _ in broken] == [rule]
    assert message in broken[0][1]
    assert not legal({**GOOD, **change})
    assert not legal({**GOOD, **change}, rule)
    assert violations({**GOOD, **change}, *({each.id for each in RULES} - {rule})) == []


def test_every_rule_is_broken_above() -> None:
    """The list of broken configurations leaves no rule out."""
    assert {rule for rule, _, _ in BROKEN} == {rule.id for rule in RULES if rule.kind == "legal"}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES if rule.kind == "legal"])
def test_rules_work_on_columns_as_on_numbers(rule: str) -> None:
    """A column of configurations gives the column of answers."""
    changes = [{}, *(change for _, change, _ in BROKEN)]
    rows = [{**GOOD, **change} for change in changes]
    columns = {name: np.array([row[name] for row in rows]) for name in GOOD}
    assert legal(columns, rule).tolist() == [bool(legal(row, rule)) for row in rows]
    assert legal(columns).tolist() == [True] + [False] * len(BROKEN)


@pytest.mark.parametrize(
    ("vpp", "pp", "fine"), [(1, 8, True), (1, 9, False), (5, 2, True), (2, 5, True), (11, 1, False)]
)
def test_embedding_and_head_may_have_chunks_of_their_own(vpp: int, pp: int, fine: bool) -> None:
    """Eight layers make ten chunks at most; without interleaving every stage has a layer."""
    assert bool(legal({**GOOD, "vpp": vpp, "pp": pp}, "stages-have-layers")) == fine


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("cp-splits-sequence", {"cp": 1, "seq_len": 1028}),
        ("cp-splits-sequence", {"cp": 3, "seq_len": 24}),
        ("slices-divide-sequence", {"cp": 1, "slices": 256}),
        ("slices-divide-sequence", {"seq_len": 1022, "slices": 1}),
        ("interleaving-needs-whole-groups", {"num_microbatches": 7, "schedule": SCHEDULES.index("slimpipe")}),
        ("cp-switches-heads", {"cp_heads": 1, "heads": 7, "kv_heads": 7}),
        ("cp-switches-heads", {"cp": 6, "cp_heads": 2}),
        ("experts-fill-stage", {"ep": 8, "etp": 4}),
        ("experts-fill-stage", {"tp": 1, "ep": 8, "etp": 1}),
        ("tp-inside-domain", {"domain": 4}),
        ("tp-inside-domain", {"domain": 6, "gpus": 4}),
    ],
)
def test_what_a_rule_lets_through(rule: str, change: dict[str, Any]) -> None:
    """No context parallelism, no slices, no groups, a ring, experts over all ranks of a stage, a part-filled domain."""
    assert legal({**GOOD, **change}, rule)
    assert violations({**GOOD, **change}, rule) == []


@pytest.mark.parametrize(("value", "of", "near"), [(3, 8, "2 or 4"), (9, 8, "8"), (5, 7, "1 or 7"), (4, 8, "4 or 8")])
def test_nearest_divisors_stand_on_both_sides(value: int, of: int, near: str) -> None:
    """The largest one up to the value and the next one."""
    assert nearest_divisors(value, of) == near
