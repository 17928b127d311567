"""The cheapest cluster for so many tokens in so many days: of every priced GPU the fewest nodes, and what is near.

More GPUs never take longer (they can stay idle), so the fewest nodes that meet the deadline are found by doubling and
bisection; fewer than perfect use of the peak allows are not tried. Fewer GPUs use their time better, but a rounder
number above may use it better still: such numbers are tried, too.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from cost_models.flops import model_flops
from cost_models.specs import catalog
from cost_models.specs.units import MAX_GPUS, format_tokens
from cost_models.specs.workload import default_workload
from planner.economics import Economics, Economy, economics
from planner.economics.assumptions import ANY_GPU, DAY_S
from planner.errors import Interrupted, RequestError
from planner.request import PlanRequest, build_request
from planner.study.answers import Answer, Kept, digest_of
from planner.study.run import Backend, StudyProgress, conduct
from planner.summary import PlanSummary

__all__ = ["Cheapest", "Option", "cheapest_cluster"]

# Share of the peak that large jobs reach, to begin the search at.
USUAL_MFU = 0.4
MOST_NODES = 65_536
# Rounder numbers of nodes that are tried above the fewest, and how far above.
ROUNDER, ROUNDER_UP_TO = 4, 1.5


@dataclass(frozen=True)
class Option:
    """One cluster that was planned: its plan and what the run comes to, or why there is none."""

    gpu: str
    nodes: int
    gpus: int
    plan: PlanSummary | None
    economics: Economics | None
    reasons: tuple[str, ...]

    @property
    def meets(self) -> bool:
        """Whether the run ends in time."""
        return self.economics is not None and bool(self.economics.meets_deadline)

    @property
    def cost_usd(self) -> float:
        """Dollars of the run; infinite where there is no plan."""
        cost = None if self.economics is None else self.economics.cost_usd
        return float("inf") if cost is None else cost


@dataclass(frozen=True)
class Cheapest:
    """The cheapest cluster in time, None where none is; everything that was tried; what the answer rests on."""

    answer: Option | None
    by_gpu: Mapping[str, Option | None]
    tried: tuple[Option, ...]
    notes: tuple[str, ...]


_Walk = Generator[list[int], dict[int, Option], None]


def cheapest_cluster(
    flags: Mapping[str, Any],
    economy: Economy,
    *,
    jobs: int = 1,
    backend: Backend = "loky",
    folder: Path | None = None,
    progress: Callable[[StudyProgress], None] | None = None,
) -> Cheapest:
    """The answer for the keywords of `build_request` without hardware, of the GPUs that have a price.

    Raises RequestError where tokens, days or prices are missing or hardware is given, and Interrupted on Ctrl-C.
    """
    gpus = _priced(flags, economy)
    flags, notes = _with_batch(flags, economy, gpus)
    answers = Kept(folder)
    walks = {gpu: _walk(_request(flags, gpu, 1), economy) for gpu in gpus}
    wanted = {gpu: next(walk) for gpu, walk in walks.items()}
    tried: dict[tuple[str, int], Option] = {}
    while wanted:
        fresh = {
            (gpu, nodes): _request(flags, gpu, nodes)
            for gpu, counts in wanted.items()
            for nodes in counts
            if (gpu, nodes) not in tried
        }
        digests = {place: digest_of(request) for place, request in fresh.items()}
        requests = {digests[place]: request for place, request in fresh.items()}
        if conduct(requests, answers, jobs=jobs, backend=backend, progress=progress):
            raise Interrupted
        for place, request in fresh.items():
            tried[place] = _option(request, answers.get(digests[place]), economy)
        wanted = _next(walks, wanted, tried)
    return _answer(gpus, tried, notes)


def _next(
    walks: Mapping[str, _Walk], wanted: Mapping[str, list[int]], tried: Mapping[tuple[str, int], Option]
) -> dict[str, list[int]]:
    """The numbers of nodes that each search asks for next; searches that have ended are left out."""
    found = {}
    for gpu, counts in wanted.items():
        try:
            found[gpu] = walks[gpu].send({nodes: tried[gpu, nodes] for nodes in counts})
        except StopIteration:
            continue
    return found


def _priced(flags: Mapping[str, Any], economy: Economy) -> tuple[str, ...]:
    """The GPUs to choose from. Raises RequestError where something of the question is missing."""
    for name in ("tokens", "days"):
        if getattr(economy, name) is None:
            message = f"--cheapest needs --{name}: such as --tokens 15T --days 60 --price h100-sxm=2.5,b200=4.0"
            raise RequestError(message)
    gpus = tuple(gpu for gpu in economy.price_usd_per_gpu_hour if gpu != ANY_GPU)
    if not gpus:
        message = "--cheapest needs --price of the GPUs to choose from: --price h100-sxm=2.5,b200=4.0"
        raise RequestError(message)
    for name in ("gpus", "nodes", "gpu", "cluster"):
        if flags.get(name) is not None:
            message = f"--cheapest finds the GPUs and their number itself: leave --{name} out"
            raise RequestError(message)
    return gpus


def _with_batch(
    flags: Mapping[str, Any], economy: Economy, gpus: Sequence[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The flags with one batch for all clusters, and sentences about what the answer rests on."""
    usual = (
        "Failures, checkpoints and restarts are in the days and the dollars; networks are those that the GPUs are "
        "usually sold with."
    )
    if flags.get("global_batch") is not None or flags.get("global_batch_tokens") is not None:
        return dict(flags), (usual,)
    first = _request(dict(flags), gpus[0], 1)
    count = min(_at_mfu(first, economy, USUAL_MFU), MAX_GPUS)
    tokens = max(default_workload(first.model, count).tokens, first.workload.seq_len)
    size = f"{format_tokens(tokens)} tokens, the default of {count:,} GPUs"
    batch = f"Without --global-batch all clusters make steps of {size}."
    return {**flags, "global_batch_tokens": str(tokens)}, (usual, batch)


def _at_mfu(request: PlanRequest, economy: Economy, mfu: float) -> int:
    """GPUs that meet the deadline if they reach a share of their peak all the time."""
    assert economy.tokens is not None
    assert economy.days is not None
    workload = request.workload
    flops = model_flops(request.model, workload) / workload.tokens * economy.tokens
    peak = request.cluster.gpu.peak_flops.get(workload.precision, request.cluster.gpu.peak_flops["bf16"])
    return max(1, round(flops / (peak * mfu * economy.days * DAY_S)))


def _request(flags: Mapping[str, Any], gpu: str, nodes: int) -> PlanRequest:
    return build_request(**{**flags, "gpu": gpu, "nodes": nodes})


def _option(request: PlanRequest, answer: Answer | None, economy: Economy) -> Option:
    assert answer is not None  # the study was not interrupted
    cluster, plan = request.cluster, answer.plan
    found = None if plan is None else economics(plan, economy)
    return Option(cluster.gpu.name, cluster.nodes, cluster.gpus, plan, found, answer.reasons)


def _walk(one: PlanRequest, economy: Economy) -> _Walk:
    """The search of one GPU: yields numbers of nodes to plan, is sent what they come to."""
    per_node = one.cluster.gpus_per_node
    most = min(MOST_NODES, (one.cluster.tiers[-1].domain_gpus or MAX_GPUS) // per_node)
    lower = min(max(0, -(-_at_mfu(one, economy, 1.0) // per_node) - 1), most)  # too few for any plan
    upper = min(max(lower + 1, -(-_at_mfu(one, economy, USUAL_MFU) // per_node)), most)
    while True:
        found = yield [upper]
        if found[upper].meets:
            break
        if upper >= most:
            return
        lower, upper = upper, min(2 * upper, most)
    while upper - lower > 1:
        middle = (lower + upper) // 2
        found = yield [middle]
        lower, upper = (lower, middle) if found[middle].meets else (middle, upper)
    rounder = [nodes for nodes in _round_numbers(most) if upper < nodes <= ROUNDER_UP_TO * upper]
    if rounder:
        yield rounder[:ROUNDER]


def _round_numbers(most: int) -> list[int]:
    """Numbers up to `most` that are 1, 3, 5 or 9 times a power of two, ascending: they divide in many ways."""
    powers = range(most.bit_length())
    return sorted({odd << power for odd, power in product((1, 3, 5, 9), powers) if odd << power <= most})


def _answer(gpus: Sequence[str], tried: Mapping[tuple[str, int], Option], notes: tuple[str, ...]) -> Cheapest:
    options = sorted(tried.values(), key=lambda each: (not each.meets, each.cost_usd, each.gpus))
    by_gpu: dict[str, Option | None] = {}
    for gpu in gpus:
        name = catalog.load_gpu(gpu).name
        by_gpu[name] = next((each for each in options if each.gpu == name and each.meets), None)
    in_time = [each for each in options if each.meets]
    return Cheapest(in_time[0] if in_time else None, by_gpu, tuple(options), notes)
