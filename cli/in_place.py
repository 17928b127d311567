"""What a profile says of layers and pipelines in place, where the host's work is not hidden: from points to figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cost_models.communication import hop_seconds
from planner.beyond import InPlace, beyond_operators
from planner.hop_ends import TimedPipelines, hop_ends
from planner.pipelines import divisors
from profiler.candidates import LAYERS, LAYERS_IN_A_ROW, PIPELINES, SHARED_LAYERS, layer_shape

__all__ = ["layers_in_place", "pipelines_in_place", "with_layers"]

Seconds = Mapping[str, Mapping[tuple[int, int], float]]
"""By operator, and by the tokens of a micro-batch and of a sequence."""


def with_layers(profile: Any, measured: Sequence[Any], requests: Sequence[Callable[[int], Any]]) -> Any:
    """The profile with what layers and hops took beyond operators; each of `requests` asks a model for some ranks."""

    def timed(ranks: int) -> Iterator[Any]:
        """Every model's request for so many ranks that share layers, with what these were timed to take."""
        for request_of in requests:
            request = request_of(ranks)
            on_ranks = profile.cluster.with_gpus(ranks)
            fixed = {**request.fixed, "tp": ranks}
            request = request.replaced(cluster=on_ranks, profile=profile.profile, fixed=fixed)
            yield request, layers_in_place(measured, request.model, ranks)

    alone, *several = divisors(profile.cluster.gpus, profile.cluster.gpus).tolist()
    ends = hop_ends(
        each for request_of in requests for each in pipelines_in_place(measured, request_of(alone).model, profile)
    )
    found = {
        "beyond": beyond_operators(timed(alone)),
        "beyond_shared": beyond_operators(each for ranks in several for each in timed(ranks)),
        **(dict(zip(("hop_end_s", "hop_end_token_s"), ends, strict=True)) if ends else {}),
    }
    return profile.replaced(profile=profile.profile.replaced(**found))


def layers_in_place(measured: Sequence[Any], model: Any, ranks: int = 1) -> list[InPlace]:
    """The layers of a model that were timed in place, shared by so many ranks."""
    forward, both, split = _seconds(measured, model, LAYERS if ranks == 1 else SHARED_LAYERS, ranks).values()
    return [
        InPlace(size // length, size // ranks, forward[size, length], both[size, length], split.get((size, length)))
        for size, length in sorted(forward.keys() & both.keys())
    ]


def pipelines_in_place(measured: Sequence[Any], model: Any, profile: Any) -> list[TimedPipelines]:
    """The pipelines of a model that were timed, with their layers by themselves and what a hop takes by the profile."""
    from runtime.alone import COMPUTE
    from runtime.alone_pipelines import MICRO_BATCHES, NEIGHBOURS

    forward, both, _ = _seconds(measured, model, LAYERS, 1).values()
    steps = _seconds(measured, model, PIPELINES, 1)
    whole, in_chunks = steps.values()
    pair, found = profile.cluster.with_gpus(NEIGHBOURS), []
    for size, length in sorted(forward.keys() & both.keys() & whole.keys() & in_chunks.keys()):
        hop_s = hop_seconds(pair, profile.profile, float(COMPUTE.itemsize * size * model.hidden), 1, NEIGHBOURS)[0]
        step_s = {
            name.removeprefix("pipeline_"): LAYERS_IN_A_ROW * seconds[size, length] for name, seconds in steps.items()
        }
        layer_s = forward[size, length], both[size, length]
        found.append(TimedPipelines(size, LAYERS_IN_A_ROW, MICRO_BATCHES, *layer_s, float(hop_s), step_s))
    return found


def _seconds(measured: Sequence[Any], model: Any, names: Sequence[str], ranks: int) -> Seconds:
    """Of one layer of a model, for each operator, also where nothing was timed."""
    shape = layer_shape(model)
    seconds: dict[str, dict[tuple[int, int], float]] = {name: {} for name in names}
    for one in measured:
        if one.point.operator not in names or one.point.detail[: len(shape)] != shape:
            continue
        count, length, *of_ranks = one.point.detail[len(shape) :]
        if not of_ranks or of_ranks[0] == ranks:
            seconds[one.point.operator][one.point.sizes[0], length] = one.seconds / count
    return seconds
