"""What the search knows so far: the best plan, the candidates left open, the proven floor under all other plans."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules.critical_path import PathCoefficients
from planner.document import HeterogeneousPlan, RecipeVariant
from planner.pipeline import Pipeline
from planner.predict import CostModel
from planner.request import Progress
from planner.space import MESH
from planner.workers import Workers
from solver.certificate import Certificate, certify

__all__ = ["Candidate", "Part", "Search"]

# Step times closer than this are equal: ties go to the preferred plan, not to rounding.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Candidate:
    """One layout with the best assignment found for it: no assignment of the layout takes less than `bound_s`."""

    pipeline: Pipeline
    choice: NDArray[np.int64]
    bound_s: float
    objective_s: float = inf

    @property
    def mesh(self) -> tuple[int, ...]:
        """The degrees that alternatives differ in."""
        return tuple(self.pipeline.layout[name] for name in MESH)

    @property
    def device_bytes(self) -> float:
        """Bytes of the fullest GPU."""
        return float(self.pipeline.options["device_bytes"][self.choice].max())

    def of(self, model: CostModel) -> "Candidate":
        """The same candidate, which another process may have found, with a model of this one."""
        return replace(self, pipeline=replace(self.pipeline, model=model))

    def preference(self) -> tuple[float, ...]:
        """Ties break by less offload and recompute, lower peak, smaller tp, smaller pp, then the columns in order."""
        options, layout = self.pipeline.options, self.pipeline.layout
        recompute = float(options["recompute_layers"][self.choice].sum())
        on_host = float(options["host_bytes"][self.choice].sum()) if "host_bytes" in options else 0.0
        return (on_host, recompute, self.device_bytes, layout["tp"], layout["pp"], *layout.values())


class Search:
    """The state of one search. `cutoff_s`: a plan that is not under it would not improve the answer beyond the gap.

    Where a plan of another search takes `ceiling_s`, only what beats that matters.
    """

    def __init__(
        self,
        model: CostModel,
        progress: Callable[[Progress], None] | None = None,
        *,
        ceiling_s: float = inf,
        jobs: int = 1,
    ) -> None:
        self.model = model
        self.workers = Workers(model, jobs)
        self.request = model.request
        self.best: Candidate | None = None
        self.tried: list[Candidate] = []
        self.layouts = 0
        self.rows = 0
        self.dropped: dict[str, int] = {}
        # Sentences for the answer, of what was found beside the plan.
        self.told: tuple[str, ...] = ()
        # What each variant of the recipe costs, where several were searched.
        self.recipes: tuple[RecipeVariant, ...] = ()
        self.heterogeneous: HeterogeneousPlan | None = None
        self.interrupted = False
        # Paths that replays have shown, by action table: they bound every layout that runs it.
        self.paths: dict[tuple[int, ...], dict[bytes, PathCoefficients]] = {}
        self._ceiling_s = ceiling_s
        self._open: list[Candidate] = []
        # No layout that was closed or dropped has a faster plan than the first, none that is left than the second.
        self._floor_s = inf
        self._frontier_s = 0.0
        self._progress = progress
        self._deadline = monotonic() + self.request.time_limit_s if self.request.time_limit_s else inf
        self.limit_reached = False
        self._visited = 0

    @property
    def cutoff_s(self) -> float:
        """Seconds that a plan must stay under to matter."""
        known_s = min(self.best.objective_s if self.best else inf, self._ceiling_s)
        return known_s * (1.0 - self.request.gap)

    @property
    def bound_s(self) -> float:
        """Proven at any time, also when the search is cut short: no plan of it is faster."""
        under = min((candidate.bound_s for candidate in self._open), default=inf)
        best = self.best.objective_s if self.best else inf
        return min(under, self._floor_s, self._frontier_s, best)

    @property
    def proven(self) -> bool:
        """Whether the bound is within the gap of the best plan."""
        return self.certificate.status == "OPTIMAL"

    @property
    def certificate(self) -> Certificate:
        """What the search has proven so far."""
        return certify(self.best.objective_s if self.best else inf, self.bound_s, self.request.gap)

    @property
    def seconds_left(self) -> float:
        """Wall seconds until the time limit."""
        return self._deadline - monotonic()

    @property
    def alternatives(self) -> list[Candidate]:
        """The best plan of every mesh that was replayed but that of the best of all, fastest first."""
        by_mesh: dict[tuple[int, ...], Candidate] = {}
        for candidate in self.tried:
            mesh = candidate.mesh
            if mesh not in by_mesh or candidate.objective_s < by_mesh[mesh].objective_s:
                by_mesh[mesh] = candidate
        if self.best is not None:
            by_mesh.pop(self.best.mesh, None)
        return sorted(by_mesh.values(), key=lambda candidate: (candidate.objective_s, candidate.mesh))

    @property
    def told_beside(self) -> int:
        """How many alternatives are told."""
        return self.request.top_k - 1

    @property
    def last_told_s(self) -> float:
        """Seconds of the last alternative that would be told now; infinite while there are fewer."""
        told = self.alternatives[: self.told_beside]
        if not self.told_beside:
            return self.best.objective_s if self.best else inf
        return told[-1].objective_s if len(told) == self.told_beside else inf

    def reached(self, bound_s: float) -> bool:
        """Whether the search ends here, where no layout that is left has a plan faster than `bound_s`.

        It ends when that is the cutoff or above, or when a limit was reached.
        """
        self._frontier_s = bound_s
        return self.limit_reached or bound_s >= self.cutoff_s

    def seen(self, layouts: int) -> None:
        """None; so many more layouts are listed."""
        self.layouts += layouts

    def visited(self, layouts: int, rows: int) -> None:
        """None; so many layouts and option rows were costed. Tells the progress and checks the clock."""
        self._visited += layouts
        self.rows += rows
        if self._progress is not None:
            best = self.best.objective_s if self.best else None
            self._progress(Progress(self._visited, self.layouts, best, self.bound_s if self.best else None))
        # Without a plan there is nothing to return early.
        if (self.best is not None or self._ceiling_s < inf) and monotonic() > self._deadline:
            self.limit_reached = True

    def drop(self, reason: str, layouts: int = 1, bound_s: float = inf) -> None:
        """None; layouts are dropped for a reason, none of their plans being faster than `bound_s`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + layouts
        self._floor_s = min(self._floor_s, bound_s)

    def count(self, part: "Part") -> None:
        """None; what part of this search saw and dropped, under its cutoff, counts here too."""
        self.visited(part._visited, part.rows)
        for reason, layouts in part.dropped.items():
            self.drop(reason, layouts, part._floor_s)

    def absorb(self, other: "Search") -> None:
        """None; what another search of the same question, in another space, saw and proved counts here too."""
        self.layouts += other.layouts
        self.rows += other.rows
        for reason, layouts in other.dropped.items():
            self.drop(reason, layouts)
        self._floor_s = min(self._floor_s, other.bound_s)
        self.limit_reached = self.limit_reached or other.limit_reached

    def add(self, candidate: Candidate, *, proven: bool = True) -> None:
        """None; a replayed candidate becomes the incumbent if it is better, and stays open until its gap is closed.

        One without a choice has a bound alone.
        """
        if len(candidate.choice):
            self.tried.append(candidate)
            if self.best is None or _better(candidate, self.best):
                self.best = candidate
        if proven:
            self._open.append(candidate)

    def open_candidates(self) -> Iterator[Candidate]:
        """Candidates whose bound is still under the cutoff, lowest bound first; each must be closed in turn."""
        self._open.sort(key=lambda candidate: candidate.bound_s)
        while self._open and self._open[0].bound_s < self.cutoff_s and not self.limit_reached:
            yield self._open[0]

    def close(self, candidate: Candidate, tightened: Candidate) -> None:
        """None; an open candidate makes way for itself with the bound that could be proven for its layout."""
        self._open.remove(candidate)
        self._floor_s = min(self._floor_s, tightened.bound_s)
        self.add(tightened, proven=False)
        self.visited(0, 0)


class Part(Search):
    """Part of a search, under a cutoff that stays as it is."""

    def __init__(self, model: CostModel, cutoff_s: float) -> None:
        super().__init__(model)
        self._cutoff_s = cutoff_s

    @property
    def cutoff_s(self) -> float:
        """Seconds that a plan must stay under to matter."""
        return self._cutoff_s

    def __getstate__(self) -> dict[str, Any]:
        """What of the part goes from one process to another: what it counted."""
        return {name: self.__dict__[name] for name in ("dropped", "rows", "_visited", "_floor_s")}


def _better(candidate: Candidate, best: Candidate) -> bool:
    difference = candidate.objective_s - best.objective_s
    if abs(difference) > TIE * best.objective_s:
        return difference < 0
    return candidate.preference() < best.preference()
