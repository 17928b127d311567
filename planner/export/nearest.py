"""The closest plan that a launcher can express: the fastest that keeps what it can of another plan's layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cost_models.specs.profile import HardwareProfile
from planner import compose
from planner.document import PlanDocument, recompute_summary, zero_summary
from planner.errors import InfeasibleError
from planner.fixed import layout_of, request_of
from planner.incumbent import Search
from planner.predict import CostModel
from planner.request import PlanRequest, schedules_of
from planner.search import searched
from planner.space import layouts, meshes

__all__ = ["Change", "Nearest", "nearest"]

# Wall time after which the best plan so far of one attempt is taken.
LIMIT_S = 30.0
# What is given up, one group after the other, until the launcher has a plan that fits.
GIVEN_UP = (
    ("schedule", "vpp", "group_size", "slices"),
    ("cp_heads", "cp_ring", "rank_order", "dp_shard", "dp_replicate"),
    ("micro_batch_size", "num_microbatches", "ep", "etp"),
    ("pp", "dp"),
    ("cp",),
    ("tp",),
)


@dataclass(frozen=True)
class Change:
    """A field of the plan that is other than it was, both values as text."""

    field: str
    was: str
    now: str

    @property
    def text(self) -> str:
        """The change in words."""
        return f"{self.field} {self.was} -> {self.now}"


@dataclass(frozen=True)
class Nearest:
    """A plan that the launcher can express, and what it differs in; `slower_by` is a fraction of the plan's step."""

    document: PlanDocument
    changes: tuple[Change, ...]
    slower_by: float


def nearest(document: PlanDocument, profile: HardwareProfile | None, launcher: str) -> Nearest:
    """The fastest plan that fits among those of the launcher that keep most of a plan's layout.

    Both are timed by `profile`, else by the plan's own.

    Raises InfeasibleError where the launcher has no plan that fits, SpecError when there is no profile of the GPU.
    """
    request = request_of(document, profile)
    request = request.replaced(target=launcher, schedules=schedules_of(launcher), time_limit_s=LIMIT_S)
    for held in _held(request, layout_of(document.parallelism)):
        if not len(layouts(held, meshes(held))["pp"]):
            continue
        for offload in (False, True):
            search = searched(Search(CostModel(held, offload=offload)))
            if search.best is not None:
                return _compared(document, compose.document(search))
    message = f"no plan of {launcher} fits in the memory of {request.cluster.gpus} GPUs"
    raise InfeasibleError(message)


def _held(request: PlanRequest, layout: Mapping[str, int]) -> Iterator[PlanRequest]:
    """The request held to the whole layout, then to less and less of it; to nothing at last."""
    # Whether norms are split over TP is the launcher's own choice.
    kept = {name: value for name, value in layout.items() if name != "sequence_parallel"}
    yield request.replaced(fixed=kept)
    for names in GIVEN_UP:
        kept = {name: value for name, value in kept.items() if name not in names}
        yield request.replaced(fixed=kept)


def _compared(document: PlanDocument, other: PlanDocument) -> Nearest:
    was, now = _told(document), _told(other)
    return Nearest(
        document=other,
        changes=tuple(Change(name, was[name], now[name]) for name in was if was[name] != now[name]),
        slower_by=other.predicted.step_time_s / document.predicted.step_time_s - 1.0,
    )


def _told(document: PlanDocument) -> dict[str, str]:
    """What can change, by field, as text."""
    stages = document.stages
    freed = sorted({str(stage.reshard_after_forward).lower() for stage in stages})
    shares = sorted({", ".join(f"{name} {share:g}" for name, share in stage.offload if share) for stage in stages})
    return {
        **{name: str(value) for name, value in document.parallelism},
        "layers": "/".join(str(stage.layers) for stage in stages),
        "zero_stage": zero_summary(stages),
        "reshard_after_forward": " or ".join(freed),
        "recompute": recompute_summary(stages),
        "offload": " or ".join(share or "none" for share in shares),
    }
