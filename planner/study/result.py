"""The result of a study: every scenario with what it asks and how it ended. Tables, files and pages are made of it."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from cost_models.specs.base import Flag
from planner.document.record import ByKey, Count, Record
from planner.economics import Economics
from planner.summary import PlanSummary

__all__ = ["STUDY_SCHEMA_VERSION", "ScenarioResult", "Study", "SweptInput", "with_front"]

STUDY_SCHEMA_VERSION = 1

Status = Literal["planned", "limit", "infeasible", "invalid", "open"]


class SweptInput(Record):
    """One input that the scenarios differ in."""

    key: str = Field(min_length=1, description="flag of planning without dashes, or field of a spec")
    values: tuple[str, ...] = Field(min_length=1, description="as they were written, in their order")


class ScenarioResult(Record):
    """One scenario: its inputs and how its search ended."""

    number: Count = Field(description="place in the study, from 0")
    inputs: ByKey[str] = Field(description="value of every swept input")
    status: Status = Field(
        description="planned; limit: planned, but a time limit stopped the proof; infeasible: nothing fits; invalid: "
        "the inputs contradict each other; open: not finished"
    )
    reasons: tuple[str, ...] = Field(default=(), description="why there is no plan, the tightest constraint first")
    plan: PlanSummary | None = Field(default=None, description="None where there is no plan")
    economics: Economics | None = Field(default=None, description="None where there is no plan")
    pareto: Flag = Field(
        default=False,
        description="no other scenario of the same model and sequence length is as fast and as cheap a token",
    )
    digest: str = Field(default="", description="hex digest of everything that decides the plan; equal for equals")

    def inputs_of(self, study: "Study") -> tuple[str, ...]:
        """The values of the swept inputs, in the order of the study."""
        return tuple(self.inputs[each.key] for each in study.swept)


class Study(Record):
    """A study: what all scenarios share, what they differ in, what was assumed, and all results in order."""

    schema_version: Literal[1] = 1
    tool_version: str = Field(description="version of the tool that wrote it")
    common: ByKey[str] = Field(description="flags that all scenarios share, as they were written")
    swept: tuple[SweptInput, ...] = Field(
        description="inputs that the scenarios differ in; every value with every other"
    )
    cost_unit: Literal["USD", "GPU-hours"] = Field(
        description="what cost is counted in: dollars where prices are known"
    )
    assumptions: tuple[str, ...] = Field(description="what days, money, energy and goodput rest on, one sentence each")
    notes: tuple[str, ...] = Field(default=(), description="what the results rest on beside that")
    scenarios: tuple[ScenarioResult, ...]

    @property
    def planned(self) -> Iterator[ScenarioResult]:
        """The scenarios that have a plan."""
        return (each for each in self.scenarios if each.plan is not None)


def with_front(scenarios: tuple[ScenarioResult, ...], cost_unit: str) -> tuple[ScenarioResult, ...]:
    """The scenarios, of which those are marked that lie on the front of time against cost of a token.

    Scenarios are compared with those of the same model and sequence length: a token of another is other work. Losses to
    failures and checkpoints count in both.
    """
    from solver.pareto import front

    planned = [each for each in scenarios if each.plan is not None and each.economics is not None]
    costs = [_cost(each, cost_unit) for each in planned]
    comparable = [(each, cost) for each, cost in zip(planned, costs, strict=True) if cost is not None]
    if not comparable:
        return scenarios
    work = [(each.plan.model, each.plan.seq_len) for each, _ in comparable if each.plan is not None]
    groups = np.array([sorted(set(work)).index(each) for each in work], dtype=np.int64)
    seconds = [1.0 / each.economics.tokens_per_day for each, _ in comparable if each.economics is not None]
    kept = front(np.column_stack([seconds, [cost for _, cost in comparable]]), groups)
    on_front = {comparable[row][0].number for row in kept.tolist()}
    return tuple(each.replaced(pareto=True) if each.number in on_front else each for each in scenarios)


def _cost(scenario: ScenarioResult, cost_unit: str) -> float | None:
    """What a million tokens cost; None where the price of the GPU is not known."""
    found = scenario.economics
    if found is None:
        return None
    return found.cost_usd_per_million_tokens if cost_unit == "USD" else found.gpu_hours_per_million_tokens
