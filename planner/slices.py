"""Into how many slices sequences are cut, and which models pipeline ranks can share out the ends of."""

from cost_models.specs.model import ModelSpec
from planner.request import PlanRequest

__all__ = ["SLICES_NEED", "ends_can_spread", "every_slice_count", "slice_counts"]

# Slices of a sequence that are tried: these times pp for SlimPipe, whose ranks take turns of pp slices, else powers of
# two up to the last of these times pp; none shorter than so many tokens, where kernels are no longer efficient.
SLICE_FACTORS = (1, 2, 4, 8)
LEAST_SLICE_TOKENS = 1024
SLICES_NEED = (
    f"sequences are cut into slices of at least {LEAST_SLICE_TOKENS:,} tokens; slimpipe also needs a model whose "
    "layers are all in the repeating pattern, without multi-token prediction"
)


def slice_counts(request: PlanRequest, pp: int, in_turns: bool) -> list[int]:
    """Into how many slices a sequence is cut, ascending; multiples of pp where ranks take slices in turns.

    Where the request fixes a number it is that one, however short the slices.
    """
    seq_len, asked = request.workload.seq_len, request.fixed.get("slices")
    if asked is not None:
        return [asked] if asked > 1 and not (in_turns and asked % pp) else []
    if in_turns:
        counts = [pp * factor for factor in SLICE_FACTORS]
    else:
        counts = [2**power for power in range(1, (SLICE_FACTORS[-1] * pp).bit_length())]
    return [count for count in counts if seq_len % count == 0 and seq_len // count >= LEAST_SLICE_TOKENS]


def every_slice_count(request: PlanRequest, tp: int, cp: int) -> list[int]:
    """Into how many slices a sequence is cut on some pipeline of tp*cp ranks a stage, ascending."""
    most = min(request.model.layer_pattern.repeats, request.cluster.gpus // (tp * cp))
    found = {
        count for pp in range(2, most + 1) for turns in (False, True) for count in slice_counts(request, pp, turns)
    }
    return sorted(found)


def ends_can_spread(model: ModelSpec) -> bool:
    """Whether embedding and head hold no layers, so that pipeline ranks can share them out by the vocabulary."""
    pattern = model.layer_pattern
    return not (pattern.leading or pattern.trailing or model.mtp_layers)
