"""The value of every symbol on one stage of a plan."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from cost_models import stage
from cost_models import symbols as sym
from cost_models.slicing import pipeline_exchange_costs
from cost_models.specs.parameters import padded_vocab
from cost_models.symbols import MEANINGS, RECOMPUTE_FLAGS
from planner.explain.formulas import Formula, formula, unit_of, values_of
from planner.fitting import Rows
from planner.incumbent import Candidate
from planner.predict import CostModel
from planner.space import RECOMPUTE_SETS, take

__all__ = ["Plan", "Setting"]

Expr = Any


@dataclass(frozen=True, eq=False)
class Plan:
    """A costed plan and the expressions that it was costed with."""

    candidate: Candidate

    @property
    def model(self) -> CostModel:
        """The cost model, bound to the plan's hardware."""
        return self.candidate.pipeline.model

    @cached_property
    def chosen(self) -> Rows:
        """One row a stage, with every output of the stage expressions."""
        return self.candidate.pipeline.chosen(self.candidate.choice)

    @cached_property
    def stage_expressions(self) -> Mapping[str, Expr]:
        """What a stage costs, by output."""
        request = self.model.request
        context_bytes = request.profile.context_bytes
        read = {"offload": self.model.offload, "sliced": self.model.sliced}
        return stage.stage_costs(request.model, request.recipe, context_bytes, **read)

    @cached_property
    def part_expressions(self) -> Mapping[str, Expr]:
        """What the stage expressions are made of, by symbol: costs of one unit of the model."""
        request = self.model.request
        named = request.model, request.recipe
        shared = pipeline_exchange_costs(*named) if self.model.sliced else {}
        return {
            **stage.micro_batch_costs(*named, sliced=self.model.sliced),
            **stage.exchange_costs(*named),
            **shared,
        }

    def stages(self) -> list["Setting"]:
        """The stages, first to last."""
        return [Setting(self, rank) for rank in range(self.candidate.pipeline.layout["pp"])]


@dataclass(frozen=True, eq=False)
class Setting:
    """One stage of a plan: the value of any symbol there."""

    plan: Plan
    rank: int

    def cost(self, output: str) -> float:
        """An output of the stage expressions, as the plan was costed."""
        return float(self.plan.chosen[output][self.rank])

    @cached_property
    def relief(self) -> float:
        """Seconds of a pass over those of the operators, which are bound to all nodes: see `CostModel.relief`."""
        layout = self.plan.candidate.pipeline.layout
        return float(self.plan.model.relief(np.array([layout["world"]]))[0])

    def values(self, expressions: Iterable[Expr]) -> dict[str, float]:
        """The value of each symbol of some expressions, by name."""
        return self.symbols({symbol.name for each in expressions for symbol in sympy.sympify(each).free_symbols})

    def symbols(self, names: Iterable[str]) -> dict[str, float]:
        """The value of each symbol of the cost expressions among some names."""
        known = (name for name in sorted(set(names)) if name in MEANINGS or name == "allocated_bytes")
        return {name: self._value(name) for name in known}

    def evaluated(self, expressions: Mapping[str, Expr]) -> Mapping[str, float]:
        """The value of each expression here, by name."""
        return values_of(expressions, self.values(expressions.values()), self.plan.model.functions)

    def of_micro_batch(self, expression: Expr) -> Expr:
        """The seconds of a micro-batch, from those of one pass: as many as there are slices."""
        if self.plan.model.sliced:
            return sym.slices * expression
        return sympy.sympify(expression).xreplace({sym.slice_len: sym.seq_len})

    def formula(self, name: str, expression: Expr, value: float | None = None, unit: str | None = None) -> Formula:
        """The expression written out with this stage's numbers; its value is computed where it is not given."""
        values = self.values([expression])
        number = self.evaluated({name: expression})[name] if value is None else value
        return formula(name, expression, values, number, unit or unit_of(name))

    def _value(self, name: str) -> float:
        model, layout = self.plan.model, self.plan.candidate.pipeline.layout
        if name == "slice_len":
            return float(model.constants["seq_len"]) / layout["slices"]
        if name in model.constants:
            return float(model.constants[name])
        if name in ("allocated_bytes", "stranded_bytes"):
            return self.cost(name)
        if name in self._flags:
            return self._flags[name]
        if name == "padded_vocab":
            request = model.request
            return float(padded_vocab(request.model.vocab, request.recipe.vocab_multiple, layout["tp"]))
        column = self.plan.candidate.pipeline.costs.gather((name,), self._row)[name]
        return float(np.ravel(column)[0])

    @cached_property
    def _row(self) -> Rows:
        return take(self.plan.candidate.pipeline.options, self.plan.candidate.choice[[self.rank]])

    @cached_property
    def _flags(self) -> dict[str, float]:
        modules = RECOMPUTE_SETS[int(self._row["recompute"][0])]
        return {symbol.name: float(module in modules) for module, symbol in RECOMPUTE_FLAGS.items()}
