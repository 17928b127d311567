"""TransformerConfig of a megatron-core that is installed (0.16 and later), built of Megatron's arguments."""

import ast
import dataclasses
import shlex

import megatron.core.utils
import torch
from packaging.version import Version

# Transformer Engine needs CUDA to be built: what is only compared with is assumed to be there.
megatron.core.utils.get_te_version = lambda: Version("2.9.0")

from megatron.core.transformer import TransformerConfig  # noqa: E402

FIELDS = {field.name for field in dataclasses.fields(TransformerConfig)}
# Where the argument and the field have other names, or the field says the opposite.
RENAMED = {
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "fp8_format": "fp8",
    "num_experts": "num_moe_experts",
}
OPPOSITE = {"disable_bias_linear": "add_bias_linear"}


def accept(bundle):
    """Build a TransformerConfig of those arguments that are fields of it."""
    given = {}
    for line in (bundle["files"]["model.args"] + bundle["files"]["parallel.args"]).splitlines():
        name, *words = shlex.split(line)
        name = name.removeprefix("--").replace("-", "_")
        values = [_literal(word) for word in words]
        value = True if not values else values[0] if len(values) == 1 and name != "recompute_modules" else values
        if name in OPPOSITE:
            given[OPPOSITE[name]] = not value
        elif RENAMED.get(name, name) in FIELDS:
            given[RENAMED.get(name, name)] = value
    pipeline = {"pipeline_dtype": torch.bfloat16} if given.get("pipeline_model_parallel_size", 1) > 1 else {}
    gated = {"gated_linear_unit": "--swiglu" in bundle["files"]["model.args"]}
    given.pop("cpu_offloading_num_layers", None)
    config = TransformerConfig(**given, **pipeline, **gated, persist_layer_norm=False)
    return {"layers": config.num_layers, "fields": len(given)}


def _literal(word):
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word
