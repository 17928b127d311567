"""Plans to try on a machine: the best ones, random ones and bad ones of all that a runtime can run."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.document import PlanDocument
from planner.fixed import FixedStage
from planner.predict import CostModel
from planner.proposal import Proposal
from planner.request import PlanRequest
from planner.space import LAYOUT_FIELDS, RECOMPUTE_SETS, ZERO_MODES, layouts, meshes, units

__all__ = ["Trial", "trial_plans"]

Kind = Literal["best", "random", "bad"]
# What tells the best plans apart.
TELLING = ("tp", "pp", "dp", "micro_batch_size", "schedule")
# Options of a layout: how states are sharded, and what is recomputed, of those that a runtime has.
RECOMPUTED = ((), ("norm", "activation"), ("mlp",), ("full",))


@dataclass(frozen=True)
class Trial:
    """A plan to try, and why."""

    kind: Kind
    document: PlanDocument

    @property
    def predicted_s(self) -> float:
        """Its step time."""
        return self.document.predicted.step_time_s


def trial_plans(
    request: PlanRequest,
    *,
    best: int,
    at_random: int,
    bad: int,
    seed: int,
    runs: Callable[[PlanDocument], bool],
) -> list[Trial]:
    """So many of each kind, of those that run: the best of each mesh, micro-batch and schedule; random ones of all, and
    of the slowest tenth. None comes twice.

    The options of one mesh, micro-batch and schedule often differ by less than a step does from the next.
    """
    every = sorted(_configurations(request), key=lambda each: each.candidate.objective_s)
    chosen: list[Trial] = []
    seen: set[tuple[int, ...]] = set()
    for each in every:
        key = tuple(each.layout[name] for name in TELLING)
        if len(chosen) < best and key not in seen and each.figures.fits and runs(each.document):
            seen.add(key)
            chosen.append(Trial("best", each.document))
    drawn = random.Random(seed)
    taken = {each.document.configuration.model_dump_json() for each in chosen}
    slowest = every[-max(bad, len(every) // 10) :]
    for kind, pool, count in (("random", every, at_random), ("bad", slowest, bad)):
        for each in drawn.sample(pool, len(pool)):
            if sum(trial.kind == kind for trial in chosen) >= count:
                break
            document = each.document
            name = document.configuration.model_dump_json()
            if name not in taken and runs(document):
                taken.add(name)
                chosen.append(Trial(kind, document))  # type: ignore[arg-type]
    return chosen


def _configurations(request: PlanRequest) -> Iterator[Proposal]:
    """Every layout of a request on all of its GPUs with every set of options, stages as even as they go; legal ones."""
    columns = layouts(request, meshes(request))
    whole = units(request.model)
    modules = CostModel(request).recompute_modules
    sets = [RECOMPUTE_SETS.index(names) for names in RECOMPUTED if set(names) <= modules]
    for row in range(len(columns["pp"])):
        layout = {name: int(columns[name][row]) for name in LAYOUT_FIELDS}
        share, rest = divmod(whole, layout["pp"])
        counts = [share + (rank >= layout["pp"] - rest) for rank in range(layout["pp"])]
        if min(counts) < layout["vpp"]:
            continue
        for zero in _zero_modes(layout["dp"]):
            for recompute in sets:
                per_chunk = -(-max(counts) // layout["vpp"]) if recompute else 0
                stages = tuple(FixedStage(count, zero, recompute, per_chunk) for count in counts)
                found = Proposal(request, layout, stages, whole)
                if found.world == request.cluster.gpus and not found.illegal:
                    yield found


def _zero_modes(dp: int) -> Sequence[int]:
    """Those that differ: on one data-parallel rank nothing is sharded."""
    return range(len(ZERO_MODES["zero_stage"])) if dp > 1 else (0,)
