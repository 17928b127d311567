"""One row as a configuration: model, cluster, workload, recipe, layout, layers of each chunk, ZeRO mode, recompute."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules.table import Placement
from cost_models.specs import catalog
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError
from planner.evaluate.frameworks import recipe_of
from planner.evaluate.hardware import cluster_of
from planner.evaluate.layouts import layout_of
from planner.evaluate.models import model_of
from planner.evaluate.recompute import Recompute, read_recompute
from planner.evaluate.sharding import Sharding, read_sharding
from planner.evaluate.split import chunk_sizes, read_sizes
from planner.fixed import zero_mode
from planner.given_profile import recipe_on

__all__ = ["Run", "read_run"]

DEFAULT_SEQ_LEN = 2048
# What the framework is called whose optimizer steps do not wait for all ranks (Qi et al. 2024). Its launch script sets
# --enable-optimizer-post-validation and --no-overlap-p2p-communication, which schedules of its own do not heed.
ZERO_BUBBLE = "zero bubble"
ZERO_STAGES: dict[Sharding, int] = {"ddp": 0, "zero1": 1, "zero2": 2, "fsdp": 3, "grad_op": 3, "hsdp": 3}
# Words of a precision, in the order in which they decide, and the type of the matrix products.
PRECISIONS: tuple[tuple[str, Literal["bf16", "fp8"]], ...] = (
    ("fp4", "fp8"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("bf16", "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "bf16"),
    ("float16", "bf16"),
    ("half", "bf16"),
    ("16", "bf16"),
    ("amp", "bf16"),
    ("mixed", "bf16"),
)
# Products of nvfp4 operands over those of fp8 scaled as a whole, in training.
FP4_OVER_FP8 = 1.48
# Products of operands with a scale for 32 elements over those scaled as a whole: published pairs of steps on Blackwell
# (Llama 8B and 405B) that differ in this differ by 4 to 8 %.
MX_OVER_TENSORWISE = 0.93
# Products of operands scaled by row over those scaled as a whole: pytorch/torchtitan 7a04053 measures steps at 0.89.
ROWWISE_OVER_TENSORWISE = 0.8
FP4_GPUS = ("b200", "gb200", "b300", "gb300", "rtx-50", "mi355")


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration that somebody ran."""

    model: ModelSpec
    cluster: ClusterSpec
    profile: HardwareProfile
    workload: WorkloadSpec
    recipe: FrameworkRecipe
    layout: Mapping[str, int]
    """The columns of planner.space.LAYOUT_FIELDS, without the schedule."""
    schedule: str
    synchronized: bool
    """Whether all ranks end a step together: the authors of zero bubble step at once and validate afterwards."""
    overlaps_sends: bool
    """Whether ranks send beside their work: in the same runs the other schedules, which are Megatron's, do not."""
    groups: NDArray[np.float64]
    """float[pp, vpp] repeating groups of layers in every chunk, those beside the embedding and the head apart."""
    zero: int
    """Index of planner.space.ZERO_MODES."""
    recompute: Recompute
    recompute_given: bool
    assumed: tuple[str, ...]

    @property
    def placement(self) -> Placement:
        """Where the chunks of the model lie."""
        return schedules.placement(self.schedule, *self.groups.shape)


def read_run(row: Mapping[str, Any], measured: MeasuredProfile | None = None) -> Run:
    """The configuration of a row, on the device of a `measured` profile where that is its GPU. Raises a RunError."""
    cells = Cells(row)
    _refuse_other_tasks(cells)
    gpus = cells.whole("n_gpus")
    if gpus is None:
        message = "n_gpus is missing"
        raise InvalidRunError(message)
    seq_len = cells.whole("seq_len") or cells.assume("seq_len", DEFAULT_SEQ_LEN)
    model = model_of(cells, seq_len)
    recipe = recipe_of(cells)
    cluster = cluster_of(cells, gpus, measured)
    layout, schedule, global_batch = layout_of(cells, model, recipe, cluster)
    workload = _workload(cells, seq_len, global_batch)
    placement = schedules.placement(schedule, layout["pp"], layout["vpp"])
    given = read_sizes(cells.text("stage_layers"))
    sizes = chunk_sizes(model.layers, placement, given, fills=recipe.fills_stages)
    zero_stage, reshard = _sharding(cells, recipe)
    reshard = reshard and (layout["pp"] == 1 or recipe.reshards_in_pipeline)
    try:
        profile = _profile_of(cluster.gpu.name, cells.text("precision").lower(), measured)
    except SpecError as error:
        raise UnsupportedRunError(str(error)) from error
    _check_precision(workload.precision, cluster.gpu, profile)
    recipe, _ = recipe_on(recipe, profile)
    recompute = cells.text("recompute")
    zero_bubble = ZERO_BUBBLE in cells.text("framework").lower()
    return Run(
        model=model,
        cluster=cluster,
        profile=profile,
        workload=workload,
        recipe=recipe,
        layout=layout,
        schedule=schedule,
        synchronized=not zero_bubble or schedule not in schedules.SPLIT,
        overlaps_sends=not zero_bubble or schedule in schedules.SPLIT,
        groups=_groups(model, sizes, placement),
        zero=zero_mode(zero_stage, reshard),
        recompute=read_recompute(recompute),
        recompute_given=bool(recompute),
        assumed=tuple(cells.assumed),
    )


def _check_precision(precision: str, gpu: GpuSpec, profile: HardwareProfile) -> None:
    if precision not in gpu.peak_flops or precision not in profile.gemm:
        message = f"precision must be one that {gpu.name} has ({', '.join(profile.gemm)}), got {precision}"
        raise UnsupportedRunError(message)


def _profile_of(gpu: str, precision: str, measured: MeasuredProfile | None) -> HardwareProfile:
    """The measured profile where it is of the GPU, else the catalog's, as `_at_precision`. Raises a RunError."""
    if measured is not None and measured.cluster.gpu.name == gpu:
        return _at_precision(measured.profile, gpu, precision)
    return _profile(gpu, precision)


@lru_cache(maxsize=256)
def _profile(gpu: str, precision: str) -> HardwareProfile:
    return _at_precision(catalog.load_profile(gpu), gpu, precision)


def _at_precision(profile: HardwareProfile, gpu: str, precision: str) -> HardwareProfile:
    """The profile with fp8 products at the rate of the kind that the precision names. Raises a RunError."""
    if "fp4" in precision:
        if not gpu.startswith(FP4_GPUS):
            message = f"precision must be one that {gpu} has ({', '.join(profile.gemm)}), got fp4"
            raise UnsupportedRunError(message)
        return _with_fp8_at(profile, "fp4", FP4_OVER_FP8)
    if "rowwise" in precision:
        return _with_fp8_at(profile, "rowwise", ROWWISE_OVER_TENSORWISE)
    return _with_fp8_at(profile, "mx", MX_OVER_TENSORWISE) if "mx" in precision else profile


def _with_fp8_at(profile: HardwareProfile, kind: str, factor: float) -> HardwareProfile:
    if "fp8" not in profile.gemm:
        return profile
    roofline = profile.gemm["fp8"]
    changed = roofline.replaced(peak_fraction=min(1.0, factor * roofline.peak_fraction))
    return profile.replaced(name=f"{profile.name}-{kind}", gemm={**profile.gemm, "fp8": changed})


def _refuse_other_tasks(cells: Cells) -> None:
    task = (cells.text("task") or cells.note("task")).lower()
    if "lora" in task:
        message = f"task must train all parameters, got {task}"
        raise UnsupportedRunError(message)
    offload = cells.text("offload").lower()
    if offload not in ("", "none", "0"):
        message = f"offload must be none, got {offload}"
        raise UnsupportedRunError(message)


def _workload(cells: Cells, seq_len: int, global_batch: int) -> WorkloadSpec:
    text = cells.text("precision").lower() or str(cells.assume("precision", "bf16"))
    precision = next((known for word, known in PRECISIONS if word in text), None)
    if precision is None:
        message = f"precision must be bf16, fp16, fp8 or fp4, got {text}"
        raise UnsupportedRunError(message)
    try:
        return WorkloadSpec(seq_len=seq_len, global_batch=global_batch, precision=precision)
    except SpecError as error:
        raise InvalidRunError(str(error)) from error


def _sharding(cells: Cells, recipe: FrameworkRecipe) -> tuple[int, bool]:
    """ZeRO stage, and whether gathered weights are freed after the forward."""
    text = cells.text("zero_or_fsdp") or ("fsdp" if "fsdp" in cells.note("sharding").lower() else "")
    sharding = read_sharding(text) if text else None
    if sharding is None:
        why = f"{text!r} is not known" if text else "assumed"
        stage = int(cells.assume("zero_or_fsdp", recipe.zero_stage, why))
        return stage, stage == 3 and not cells.says("SHARD_GRAD_OP", "without reshard")
    stage = ZERO_STAGES[sharding]
    return stage, stage == 3 and sharding != "grad_op" and not cells.says("SHARD_GRAD_OP", "without reshard")


def _groups(model: ModelSpec, sizes: NDArray[np.int64], placement: Placement) -> NDArray[np.float64]:
    """Repeating groups of layers in every chunk, leading and trailing layers left to the ends of the model."""
    pattern = model.layer_pattern
    order = sizes[placement.rank, placement.chunk].astype(np.float64)
    for end, step, held in ((0, 1, len(pattern.leading)), (len(order) - 1, -1, len(pattern.trailing))):
        order[end] -= held
        while order[end] < 0 and 0 <= end + step < len(order):  # an end that holds more than its share
            order[end + step] += order[end]
            order[end], end = 0.0, end + step
    groups = np.maximum(order, 0.0) / len(pattern.period)
    return np.asarray(groups[placement.stage_of()])
