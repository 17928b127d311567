"""What plans must obey: one row a rule, one function of named values that works on arrays and on scalars.

`legal` rules hold for every plan, `express` rules for those that a launcher is to run. The search masks its columns
with these functions, a check evaluates them on one configuration, and the messages name the nearest legal values.
There is no second table.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from planner.rules.accelerate import ACCELERATE, ACCELERATE_RULES, AXOLOTL, AXOLOTL_RULES, TRAINER, TRAINER_RULES
from planner.rules.automodel import AUTOMODEL, AUTOMODEL_RULES
from planner.rules.choices import RECOMPUTE_MODULES
from planner.rules.deepspeed import DEEPSPEED, DEEPSPEED_RULES
from planner.rules.express import CONTEXT_TYPES, OPTIMIZERS, PRECISIONS, RANK_ORDERS, Launcher
from planner.rules.layout import LAYOUT_RULES
from planner.rules.maxtext import MAXTEXT, MAXTEXT_RULES
from planner.rules.megatron import BRIDGE, BRIDGE_RULES, MEGATRON, MEGATRON_RULES
from planner.rules.nanotron import NANOTRON, NANOTRON_RULES
from planner.rules.recipe import RECIPE_RULES
from planner.rules.rule import SCOPES, Rule, Scope, Values, nearest_divisors
from planner.rules.schedules import FLEXIBLE, SCHEDULES
from planner.rules.torchtitan import TORCHTITAN, TORCHTITAN_RULES

__all__ = [
    "CONTEXT_TYPES",
    "FLEXIBLE",
    "LAUNCHERS",
    "OPTIMIZERS",
    "PRECISIONS",
    "RANK_ORDERS",
    "RECOMPUTE_MODULES",
    "RULES",
    "SCHEDULES",
    "SCOPES",
    "Launcher",
    "Rule",
    "Scope",
    "Values",
    "expressible",
    "legal",
    "nearest_divisors",
    "refusals",
    "violations",
]

LAUNCHERS: tuple[Launcher, ...] = (
    MEGATRON,
    BRIDGE,
    TORCHTITAN,
    DEEPSPEED,
    ACCELERATE,
    TRAINER,
    AUTOMODEL,
    NANOTRON,
    AXOLOTL,
    MAXTEXT,
)
"""The open launchers. A plan is the form of our own runtime as it is; `planner.document.honoured` says what it runs."""

RULES: tuple[Rule, ...] = (
    *LAYOUT_RULES,
    *MEGATRON_RULES,
    *BRIDGE_RULES,
    *TORCHTITAN_RULES,
    *DEEPSPEED_RULES,
    *ACCELERATE_RULES,
    *TRAINER_RULES,
    *AUTOMODEL_RULES,
    *NANOTRON_RULES,
    *AXOLOTL_RULES,
    *MAXTEXT_RULES,
    *RECIPE_RULES,
)


def legal(values: Values, *ids: str) -> Any:
    """Boolean column: true where the rules named by `ids` (all of them when none is named) are obeyed."""
    return _obeyed(values, _legal_rules(ids))


def violations(values: Values, *ids: str) -> list[tuple[str, str]]:
    """(id, message) of each legal rule that one configuration breaks, of those named by `ids` (all of them if none)."""
    return _broken(values, _legal_rules(ids))


def expressible(values: Values, launcher: str, *scopes: Scope, fields: tuple[str, ...] = ()) -> Any:
    """Boolean column: true where a launcher can express the values, by its rules of some scopes and fields or all."""
    rules = _express_rules(launcher, scopes)
    return _obeyed(values, [rule for rule in rules if not fields or rule.field in fields])


def refusals(values: Values, launcher: str, *scopes: Scope) -> list[tuple[str, str]]:
    """(id, message) of each rule of the launcher, of some scopes (all if none), that one configuration breaks."""
    return _broken(values, _express_rules(launcher, scopes))


def _obeyed(values: Values, rules: Iterable[Rule]) -> Any:
    result: Any = True
    for rule in rules:
        result = np.logical_and(result, rule.holds(values))
    return result


def _broken(values: Values, rules: Iterable[Rule]) -> list[tuple[str, str]]:
    return [(rule.id, rule.message(values)) for rule in rules if not np.all(rule.holds(values))]


@cache
def _legal_rules(ids: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if rule.kind == "legal" and (not ids or rule.id in ids))


@cache
def _express_rules(launcher: str, scopes: tuple[Scope, ...]) -> tuple[Rule, ...]:
    own = [rule for rule in RULES if rule.kind == "express" and rule.launcher == launcher]
    return tuple(rule for rule in own if not scopes or rule.scope in scopes)
