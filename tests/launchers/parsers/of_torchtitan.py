"""torchtitan's configuration: the exported recipe applied to a Trainer.Config of its own, and the flags parsed."""

import dataclasses
import re

import torch

torch.cuda.get_device_capability = lambda *_, **__: (9, 0)

from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class  # noqa: E402
from torchtitan.components.quantization import float8  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed.pipeline_parallel import (  # noqa: E402
    _get_pipeline_metadata,
    _get_pp_rank_to_stage_indices_mapping,
)
from torchtitan.models.llama3.config_registry import llama3_8b  # noqa: E402

float8.has_cuda_capability = lambda *_: True


def accept(bundle):
    """Apply the recipe, build the mesh, give the stages to ranks, and parse the flags where there are some."""
    namespace = {}
    exec(compile(bundle["files"]["recipe.py"], "recipe.py", "exec"), namespace)
    config = namespace["plan"]() if "plan" in namespace else namespace["apply"](llama3_8b())
    dims = ParallelDims.from_config(config.parallelism, bundle["world"])
    if "plan" in namespace:
        config.model_spec.model.update_from_config(config=config)
    if dims.pp > 1:
        _check_stages(config, dims)
    if "flags.args" in bundle["files"]:
        _check_flags(bundle["files"]["flags.args"], config)
    return {"batch": config.training.global_batch_size, "mesh": [dims.pp, dims.dp_replicate, dims.dp_shard, dims.tp]}


def _check_stages(config, dims):
    """The schedule exists, every rank gets its stages, and no layer is left out."""
    parallelism = config.parallelism
    _get_pipeline_metadata(dims, parallelism, config.model_spec.model)
    stages = parallelism.module_fqns_per_model_part
    of_rank = [
        _get_pp_rank_to_stage_indices_mapping(rank, dims.pp, parallelism.pipeline_parallel_schedule, len(stages))
        for rank in range(dims.pp)
    ]
    assert sorted(index for indices in of_rank for index in indices) == list(range(len(stages)))
    single = issubclass(get_schedule_class(parallelism.pipeline_parallel_schedule), PipelineScheduleSingle)
    assert not single or len(stages) == dims.pp, "one stage a rank"


def _check_flags(text, config):
    """The flags parse to the same parallelism and training as the recipe has."""
    words = text.split()
    module, name = "llama3", "llama3_8b"
    parsed = ConfigManager().parse_args(["--module", module, "--config", name, *words])
    for section in ("parallelism", "training"):
        ours, theirs = (dataclasses.asdict(getattr(each, section)) for each in (config, parsed))
        given = set(re.findall(rf"--{section}\.(?:no-)?(\w+)", text))
        assert {key: ours[key] for key in given} == {key: theirs[key] for key in given}
    recompute = type(config.activation_checkpoint).__qualname__, type(parsed.activation_checkpoint).__qualname__
    assert recompute[0] == recompute[1], recompute
