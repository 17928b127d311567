"""Megatron Bridge: dotted overrides of a recipe's ConfigContainer, and the same as Python."""

import json
from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.errors import LauncherFileError
from planner.export.arguments import Value
from planner.export.bundle import Bundle, Job, require
from planner.export.launch import torchrun
from planner.export.megatron import environment, parallel_arguments, plan_of
from planner.export.reading import Section
from planner.rules.megatron import BRIDGE

__all__ = ["bundle", "plan"]

OVERRIDES_FILE, PYTHON_FILE = "overrides.txt", "parallel.py"
# Where the container keeps what Megatron's argument says; several places must agree, the first is read.
PLACES: dict[str, tuple[str, ...]] = {
    **{
        name: (f"model.{name}",)
        for name in (
            "tensor_model_parallel_size",
            "sequence_parallel",
            "pipeline_model_parallel_size",
            "pipeline_model_parallel_layout",
            "context_parallel_size",
            "cp_comm_type",
            "hierarchical_context_parallel_sizes",
            "expert_model_parallel_size",
            "expert_tensor_parallel_size",
            "moe_token_dispatcher_type",
            "moe_grouped_gemm",
            "recompute_granularity",
            "recompute_method",
            "recompute_num_layers",
            "recompute_modules",
            "cpu_offloading_num_layers",
        )
    },
    **{
        name: (f"optimizer.{name}",)
        for name in (
            "use_precision_aware_optimizer",
            "main_grads_dtype",
            "main_params_dtype",
            "exp_avg_dtype",
            "exp_avg_sq_dtype",
            "optimizer_cpu_offload",
            "optimizer_offload_fraction",
        )
    },
    "microbatch_group_size_per_virtual_pipeline_stage": ("model.microbatch_group_size_per_vp_stage",),
    "num_virtual_stages_per_pipeline_rank": ("model.virtual_pipeline_model_parallel_size",),
    "seq_length": ("model.seq_length", "dataset.seq_length"),
    "micro_batch_size": ("train.micro_batch_size",),
    "global_batch_size": ("train.global_batch_size",),
    "use_distributed_optimizer": ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"),
    "overlap_grad_reduce": ("ddp.overlap_grad_reduce",),
    "overlap_param_gather": ("ddp.overlap_param_gather",),
    "num_distributed_optimizer_instances": ("ddp.num_distributed_optimizer_instances",),
    "use_megatron_fsdp": ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp"),
    "data_parallel_sharding_strategy": ("ddp.data_parallel_sharding_strategy",),
    "use_tp_pp_dp_mapping": ("dist.use_tp_pp_dp_mapping",),
    "ckpt_format": ("checkpoint.ckpt_format",),
}
PRECISION = {"bf16": "bf16_mixed", "fp8": "bf16_with_fp8_current_scaling_mixed"}
# Said by mixed_precision, or Bridge's own choice.
ELSEWHERE = ("bf16", "fp8_format", "fp8_recipe", "grad_reduce_in_bf16", "no_gradient_accumulation_fusion")
PYTHON = '''\
"""The parallel part of a plan, for a recipe of Megatron Bridge: `cfg = apply(llama3_70b_pretrain_config())`."""


def apply(cfg):
    """The ConfigContainer with the plan's parallelism, batch, sharding, recompute and overlap."""
{assignments}    return cfg
'''


def bundle(configuration: Configuration) -> Bundle:
    """The plan as overrides, one a line, and as a Python function that makes the same assignments."""
    values = _values(configuration)
    overrides = "".join(f"{place}={_written(value)}\n" for place, value in values.items())
    assignments = "".join(f"    cfg.{place} = {value!r}\n" for place, value in values.items())
    return Bundle(
        launcher=BRIDGE.name,
        versions=BRIDGE.versions,
        files={OVERRIDES_FILE: overrides, PYTHON_FILE: PYTHON.format(assignments=assignments)},
        command=torchrun(configuration, f"pretrain.py $(cat {OVERRIDES_FILE})"),
        env=environment(configuration),
        notes=("pretrain.py is a script of yours that takes a recipe and dotted overrides of it.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files, read off the overrides. Raises LauncherFileError."""
    require(files, "bridge", OVERRIDES_FILE)
    values = {}
    for line in filter(None, files[OVERRIDES_FILE].splitlines()):
        place, equals, text = line.partition("=")
        if not equals:
            message = f"overrides are lines such as train.micro_batch_size=1, got {line!r}"
            raise LauncherFileError(message)
        values[place] = _read(text)
    arguments = {name: values[places[0]] for name, places in PLACES.items() if places[0] in values}
    precision = Section(values).word("mixed_precision", tuple(PRECISION.values()), "bf16_mixed")
    if precision != PRECISION["bf16"]:
        arguments["fp8_format"] = "hybrid"
    return plan_of(Section(arguments), job)


def _values(configuration: Configuration) -> dict[str, Value]:
    arguments = parallel_arguments(configuration)
    values: dict[str, Value] = {}
    for name, value in arguments.items():
        if name not in ELSEWHERE:
            values |= dict.fromkeys(PLACES[name], value)
    values["mixed_precision"] = PRECISION[configuration.workload.precision]
    if "cpu_offloading_num_layers" in arguments:
        values["model.cpu_offloading"] = True
    return values


def _written(value: Value) -> str:
    """A value as an override: JSON without blanks, which OmegaConf reads too; words that need it in quotes."""
    if isinstance(value, str):
        return value if value.replace("_", "").isalnum() else f"'{value}'"
    return json.dumps(value, separators=(",", ":"))


def _read(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
