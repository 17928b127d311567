"""Launchers' own parsers accept what we export, and refuse nothing that we call legal."""

import json
import re

import pytest

from planner.export import exported
from planner.rules import violations
from planner.space import known_values
from tests.launchers.environment import PACKAGES, answers, told
from tests.planner.export.configurations import configurations

pytestmark = pytest.mark.launchers

COUNT = 200
# The parser of a TransformerConfig reads what Megatron is told.
LAUNCHER = {parser: parser for parser in PACKAGES} | {"transformer_config": "megatron"}


@pytest.mark.parametrize("parser", PACKAGES)
def test_two_hundred_random_legal_plans_are_accepted(parser: str) -> None:
    """None of the plans is refused; refusals are told with their plans."""
    plans = list(configurations(LAUNCHER[parser], COUNT, seed=3))
    refused = [
        f"{answer.error[:300]}\n  {plan.model.name} {plan.parallelism}"
        for plan, answer in zip(plans, answers(parser, LAUNCHER[parser], plans), strict=True)
        if not answer.accepted
    ]
    assert not refused, f"{len(refused)} of {COUNT}:\n" + "\n".join(refused[:5])


# A change of an accepted export that breaks a legal rule: the argument, its value, the rule, and the same in our terms.
ILLEGAL = (
    ("tensor-model-parallel-size", "3", "tp-divides-heads", {"tp": 3}),
    ("expert-model-parallel-size", "3", "ep-divides-experts", {"ep": 3}),
    ("context-parallel-size", "3", "cp-splits-sequence", {"cp": 3}),
    ("global-batch-size", "33", "batch-divides", {"global_batch": 33, "dp": 2}),
    ("world", "15", "degrees-multiply", {"tp": 2, "cp": 1, "pp": 1, "dp": 8, "gpus": 15}),
)


def test_megatron_refuses_what_breaks_a_legal_rule_and_so_do_we() -> None:
    """Our refusal does not need theirs: each change is refused by both."""
    plan = next(
        each
        for each in configurations("megatron", 200, seed=3)
        if each.model.moe and each.parallelism.tp * each.parallelism.pp == 1 and each.stages[0].zero_stage < 2
    )
    bundle = exported(plan, "megatron")
    lines = []
    for name, value, rule, change in ILLEGAL:
        values = {**known_values(plan), **plan.parallelism.model_dump(), **change}
        assert [broken for broken, _ in violations(values, rule)] == [rule]
        arguments = re.sub(rf"--{name} \d+\n", "", bundle.main)
        arguments += f"--{name} {value}\n" if name != "world" else "--tensor-model-parallel-size 2\n"
        world = int(value) if name == "world" else plan.parallelism.gpus_used
        env = {**bundle.env, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        lines.append(json.dumps({"files": {**bundle.files, "parallel.args": arguments}, "env": env, "world": world}))
    assert [answer.accepted for answer in told("megatron", lines)] == [False] * len(ILLEGAL)
