"""Lowered cost expressions, kept by what they are written from: the structure of a model and the recipe, not sizes.

Building and sharing an expression takes a tenth of a second, binding it to a device next to nothing: models that
differ in sizes alone, and the same model on other hardware, share one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from cost_models.expression_store import kept, unbound
from cost_models.lowered import Lowered, Parted
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["LATE", "lowered_exchange", "lowered_micro_batch", "lowered_pipeline_exchange", "lowered_stage", "structure"]

# Sizes that stand in the expressions as symbols, and what is only told.
_SIZES: Any = {
    "name": True,
    "source": True,
    "layers": True,
    "hidden": True,
    "ffn": True,
    "heads": True,
    "kv_heads": True,
    "head_dim": True,
    "vocab": True,
    "max_seq_len": True,
    "position_offset": True,
    "moe": {"experts", "top_k", "expert_ffn", "shared_experts", "shared_ffn", "leading_dense_layers"},
    "mla": {"query_rank", "kv_rank", "nope_head_dim", "rope_head_dim", "value_head_dim"},
}
_TOLD = {"name", "sources"}

# What changes from one pipeline rank to the next where all else of a stage is the same, and what the search tries out.
LATE = (
    "live_layers",
    "live_recompute_layers",
    "live_embedding",
    "live_head",
    "waiting_embedding",
    "waiting_head",
    "recompute_layers",
)


@dataclass(frozen=True)
class _Written:
    """A spec, equal to every other whose expressions are the same."""

    key: str
    spec: Any = field(compare=False)


def structure(model: ModelSpec) -> str:
    """What the expressions of a model are written from: equal for models that differ in sizes alone."""
    pattern = model.layer_pattern
    shapes = (pattern.leading, pattern.period, pattern.trailing, model.mtp_kind if model.mtp_layers else None)
    zeros = (bool(model.moe and model.moe.shared_ffn), bool(model.mla and model.mla.query_rank))
    return f"{model.model_dump_json(exclude=_SIZES)} {shapes} {zeros}"


def lowered_micro_batch(model: ModelSpec, recipe: FrameworkRecipe, *, sliced: bool = False) -> Lowered:
    """`stage.micro_batch_costs`, lowered; its operators are not bound to a device."""
    return _micro_batch(_of_model(model), _of_recipe(recipe), sliced)


def lowered_pipeline_exchange(model: ModelSpec, recipe: FrameworkRecipe) -> Lowered:
    """`slicing.pipeline_exchange_costs`, lowered; its operators are not bound to a device."""
    return _pipeline_exchange(_of_model(model), _of_recipe(recipe))


def lowered_exchange(model: ModelSpec, recipe: FrameworkRecipe) -> Lowered:
    """`stage.exchange_costs`, lowered; its operators are not bound to a device."""
    return _exchange(_of_model(model), _of_recipe(recipe))


def lowered_stage(
    model: ModelSpec,
    recipe: FrameworkRecipe,
    context_bytes: float,
    *,
    offload: bool,
    outputs: tuple[str, ...],
    sliced: bool = False,
) -> Parted:
    """The named outputs of `stage.stage_costs` (all of them when none is named), lowered and not bound to a device.

    In two steps, of which the second reads the columns of LATE.
    """
    return _stage(_of_model(model), _of_recipe(recipe), context_bytes, offload, outputs, sliced)


def _of_model(model: ModelSpec) -> _Written:
    return _Written(structure(model), model)


def _of_recipe(recipe: FrameworkRecipe) -> _Written:
    return _Written(recipe.model_dump_json(exclude=_TOLD), recipe)


@lru_cache(maxsize=256)
def _micro_batch(model: _Written, recipe: _Written, sliced: bool) -> Lowered:
    def costs() -> dict[str, Any]:
        from cost_models import stage

        return stage.micro_batch_costs(model.spec, recipe.spec, sliced=sliced)

    return kept(("micro-batch", model.key, recipe.key, sliced), lambda: _lowered(costs()))


@lru_cache(maxsize=256)
def _pipeline_exchange(model: _Written, recipe: _Written) -> Lowered:
    def costs() -> dict[str, Any]:
        from cost_models import slicing

        return slicing.pipeline_exchange_costs(model.spec, recipe.spec)

    return kept(("pipeline exchange", model.key, recipe.key), lambda: _lowered(costs()))


@lru_cache(maxsize=256)
def _exchange(model: _Written, recipe: _Written) -> Lowered:
    def costs() -> dict[str, Any]:
        from cost_models import stage

        return stage.exchange_costs(model.spec, recipe.spec)

    return kept(("exchange", model.key, recipe.key), lambda: _lowered(costs()))


@lru_cache(maxsize=256)
def _stage(
    model: _Written, recipe: _Written, context_bytes: float, offload: bool, outputs: tuple[str, ...], sliced: bool
) -> Parted:
    @cache
    def steps() -> tuple[dict[str, Any], dict[str, Any]]:
        from cost_models.lower import parted

        expressions = _stage_expressions(model, recipe, context_bytes, offload, sliced)
        return parted({name: expressions[name] for name in outputs or expressions}, LATE)

    parts = ("stage", model.key, recipe.key, context_bytes, offload, outputs, sliced)
    early = kept((*parts, "early"), lambda: _lowered(steps()[0]))
    return Parted(early, kept((*parts, "late"), lambda: _lowered(steps()[1])))


@lru_cache(maxsize=256)
def _stage_expressions(
    model: _Written, recipe: _Written, context_bytes: float, offload: bool, sliced: bool
) -> dict[str, Any]:
    from cost_models import stage

    return stage.stage_costs(model.spec, recipe.spec, context_bytes, offload=offload, sliced=sliced)


def _lowered(expressions: Mapping[str, Any]) -> Lowered:
    """The expressions, lowered and not bound. Only here is sympy loaded: an expression that is kept needs none."""
    from cost_models.lower import lower
    from cost_models.operators import NAMES

    return lower(expressions, dict.fromkeys(NAMES, unbound))
