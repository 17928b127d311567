"""NeMo AutoModel: parse_distributed_section of the YAML, and the mesh that it would build, checked as it checks it."""

import contextlib

import yaml
from nemo_automodel.components.distributed import mesh_utils
from nemo_automodel.recipes._dist_utils import parse_distributed_section
from torch.distributed.pipelining.schedules import get_schedule_class


class NoMesh(Exception):
    """The mesh would be built now: all that is checked before has passed."""


def _stop(*_, **__):
    raise NoMesh


mesh_utils._init_named_mesh = _stop


def accept(bundle):
    """Parse the section and lay the mesh out for the job's ranks without starting them."""
    values = yaml.safe_load(bundle["files"]["automodel.yaml"])
    distributed, steps = values["distributed"], values["step_scheduler"]
    parsed = parse_distributed_section(distributed)
    sizes = parsed["parallelism_sizes"]
    with contextlib.suppress(NoMesh):
        mesh_utils._create_device_meshes(parsed["strategy_config"], sizes, world_size=bundle["world"])
    inner = sizes.tp_size * sizes.cp_size * sizes.pp_size
    assert inner * sizes.dp_size == bundle["world"], "dp_size * tp_size * cp_size * pp_size is the world"
    if parsed["pp_enabled"]:
        pipeline = parsed["pipeline_config"]
        get_schedule_class(pipeline.pp_schedule)
        assert pipeline.pp_batch_size // pipeline.pp_microbatch_size >= sizes.pp_size
        assert len(pipeline.module_fqns_per_model_part) % sizes.pp_size == 0
        assert pipeline.pp_batch_size == steps["local_batch_size"]
    return {"strategy": type(parsed["strategy_config"]).__name__, "dp": sizes.dp_size}
