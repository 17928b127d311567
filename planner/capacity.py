"""Inverse questions: the fewest GPUs, the longest sequence, the largest batch, the largest model that fit.

Each is answered by a search on the answer. Whether a job fits is exact (planner/feasibility.py), without offload, for
hosts would let nearly everything fit at many times the seconds. Where more of something can only fit worse (or more
GPUs only better), the edge is found by doubling and bisection; where that need not hold, what is near the edge is tried
too, and said.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from cost_models.specs import catalog
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import parameters
from cost_models.specs.units import MAX_GPUS
from planner.errors import RequestError
from planner.feasibility import Trial, trial
from planner.live import ALL_ALIVE, SETTLED
from planner.request import PlanRequest

__all__ = ["Capacity", "Question", "Tried", "family_of", "largest_model", "max_global_batch", "max_seq_len", "min_gpus"]

Question = Literal["min-gpus", "max-seq-len", "max-global-batch", "largest-model"]
# Lengths and batches beyond these are not tried.
MAX_SEQ_LEN = 2**24
MAX_GLOBAL_BATCH = 2**20
# Lengths are multiples of this, or of what every power-of-two layout of the GPUs divides.
TOKENS = 1024
# Beyond the edge of a bisection so many further values are tried.
BEYOND = 4
ENDLESS = "There is no end: more micro-batches follow each other in the same memory, the step takes that much longer."
WITHOUT_OFFLOAD = "Without offload to the host, whatever plans fall back on where nothing else fits."


@dataclass(frozen=True)
class Tried:
    """One value of the answer: whether it fits, or why not; seconds and bytes of the first plan found, not the best."""

    value: int | str
    fits: bool
    why_not: str
    step_time_s: float | None
    device_bytes: float | None
    gpus: int


@dataclass(frozen=True)
class Capacity:
    """The answer, None where nothing tried fits; every value that was tried, in order; the job of the answer, to plan.

    `bounded` is false where the largest value that is tried fits, too. `notes` say what the answer rests on.
    """

    question: Question
    answer: int | str | None
    bounded: bool
    frontier: tuple[Tried, ...]
    notes: tuple[str, ...]
    request: PlanRequest | None


@dataclass
class _Frontier:
    """Trials by value, each made once."""

    request_of: Callable[[int], PlanRequest]
    trials: dict[int, Trial] = field(default_factory=dict)

    def fits(self, value: int) -> bool:
        if value not in self.trials:
            self.trials[value] = trial(self.request_of(value))
        return self.trials[value].fits

    def answered(self, question: Question, answer: int | None, bounded: bool, *notes: str) -> Capacity:
        frontier = tuple(_tried(value, self.trials[value]) for value in sorted(self.trials))
        request = None if answer is None else self.request_of(answer)
        return Capacity(question, answer, bounded, frontier, (*notes, WITHOUT_OFFLOAD), request)


def min_gpus(request: PlanRequest, most: int = MAX_GPUS) -> Capacity:
    """The fewest GPUs, up to `most`, on which the job fits; its batch stays. Idle GPUs are allowed, so more never hurt.

    But for one rule: TP of any size is legal where all GPUs are in one domain, so counts up to its size are all tried.
    """
    frontier = _Frontier(lambda gpus: request.replaced(cluster=request.cluster.with_gpus(gpus)))
    most = min(most, request.cluster.tiers[-1].domain_gpus or most)
    upper = 1
    while upper < most and not frontier.fits(upper):
        upper = min(2 * upper, most)
    if not frontier.fits(upper):
        return frontier.answered("min-gpus", None, True, f"On {most:,} GPUs and fewer nothing fits.")
    lower = max((value for value, found in frontier.trials.items() if not found.fits), default=0)
    answer = _edge(lower, upper, frontier.fits)
    domain = min(request.cluster.tiers[0].domain_gpus or answer, answer)
    odd = next((gpus for gpus in range(1, domain) if frontier.fits(gpus)), answer)
    tried = f"every count up to {min(odd, domain):,} was tried, for inside one domain TP may be any number"
    return frontier.answered("min-gpus", odd, True, f"More GPUs never fit worse, they can stay idle; {tried}.")


def _edge(lower: int, upper: int, fits: Callable[[int], bool]) -> int:
    """The least value above `lower`, which does not fit, that fits, where `upper` does and fitting is monotone."""
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (lower, middle) if fits(middle) else (middle, upper)
    return upper


def max_seq_len(request: PlanRequest) -> Capacity:
    """The longest sequence that fits; the sequences of a step stay. A multiple of what degrees of two divide."""
    unit = max(TOKENS, 2 * _power_of_two(request.cluster.gpus))
    notes = (
        f"Lengths are multiples of {unit:,}, which all degrees that are powers of two divide.",
        f"A step keeps its {request.workload.global_batch:,} sequences.",
    )

    def of(units: int) -> PlanRequest:
        return request.replaced(workload=request.workload.replaced(seq_len=units * unit))

    return _largest("max-seq-len", _Frontier(of), unit, MAX_SEQ_LEN // unit, notes)


def max_global_batch(request: PlanRequest) -> Capacity:
    """The most sequences a step that fit: multiples of the GPUs, so that every way to share them out divides them.

    Micro-batches follow each other. As soon as a plan is found whose memory does not grow with them there is no end:
    the answer is the batch of that plan, and `bounded` is false.
    """
    unit = request.cluster.gpus
    notes = (f"Batches are multiples of the {unit:,} GPUs, whose data-parallel degrees then divide them.",)

    def of(units: int) -> PlanRequest:
        return request.replaced(workload=request.workload.replaced(global_batch=units * unit))

    frontier = _Frontier(of)
    most = max(MAX_GLOBAL_BATCH // unit, 1)
    return _largest("max-global-batch", frontier, unit, most, notes, endless=_keeps_no_more)


def _keeps_no_more(found: Trial) -> bool:
    """Whether the plan found fits any multiple of its batch, with as many more micro-batches."""
    if found.candidate is None or "num_microbatches" in found.request.fixed:
        return False
    pipeline = found.candidate.pipeline
    pp, count = pipeline.layout["pp"], pipeline.layout["num_microbatches"]
    return pp == 1 or (pipeline.schedule not in ALL_ALIVE and count >= SETTLED * pp)


def _largest(
    question: Question,
    frontier: _Frontier,
    unit: int,
    most: int,
    notes: tuple[str, ...],
    endless: Callable[[Trial], bool] = lambda _: False,
) -> Capacity:
    """The answer to what the largest multiple of `unit` is, up to `most` times it; `endless` ends the search early."""

    def answered(answer: int | None, bounded: bool, *more: str) -> Capacity:
        found = frontier.answered(question, answer, bounded, *more, *notes)
        tried = tuple(replace(each, value=int(each.value) * unit) for each in found.frontier)
        return replace(found, answer=None if answer is None else answer * unit, frontier=tried)

    if not frontier.fits(1):
        return answered(None, True)
    lower = 1
    while lower < most and not endless(frontier.trials[lower]) and frontier.fits(min(2 * lower, most)):
        lower = min(2 * lower, most)
    if endless(frontier.trials[lower]):
        return answered(lower, False, ENDLESS)
    if lower == most:
        return answered(most, False, f"Beyond {most * unit:,} nothing was tried.")
    edge = _edge(lower, min(2 * lower, most), lambda value: not frontier.fits(value))
    beyond = [value for value in range(edge, min(edge + BEYOND, most + 1)) if frontier.fits(value)]
    tried = f"{BEYOND} values beyond the largest were tried, too, for other degrees may divide them."
    return answered(max(beyond, default=edge - 1), True, tried)


def largest_model(request: PlanRequest, family: str) -> Capacity:
    """The model of most parameters, of those in the catalog whose names begin with `family`, that fits.

    Tried from the largest down: models differ in more than their size, so nothing is concluded from another.
    Raises RequestError where no name begins so.
    """
    tried = []
    notes = ("Tried from the largest down, in the order of parameters.", WITHOUT_OFFLOAD)
    for model in family_of(family):
        changed = request.replaced(model=model)
        found = trial(changed)
        tried.append(_tried(model.name, found))
        if found.fits:
            return Capacity("largest-model", model.name, True, tuple(tried), notes, changed)
    return Capacity("largest-model", None, True, tuple(tried), notes, None)


def family_of(family: str) -> list[ModelSpec]:
    """The models of the catalog whose names begin so, that of most parameters first. Raises RequestError for none."""
    wanted = catalog.key(family)
    models = [catalog.load_model(name) for name in catalog.names("models") if catalog.key(name).startswith(wanted)]
    if not wanted or not models:
        message = f"--largest-model must be how names of the catalog begin, such as llama3, got {family!r}"
        raise RequestError(message)
    return sorted(models, key=parameters, reverse=True)


def _tried(value: int | str, found: Trial) -> Tried:
    gpus = found.request.cluster.gpus
    return Tried(value, found.fits, found.why_not, found.step_time_s, found.device_bytes, gpus)


def _power_of_two(value: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (value - 1).bit_length()
