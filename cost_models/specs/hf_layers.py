"""Which layers of a config.json have a window or experts, and the regular pattern that says the same in a ModelSpec."""

from collections.abc import Sequence
from typing import Any

from cost_models.specs.hf_keys import MAX_CONTEXT, MAX_LAYERS, Keys

WINDOWED = {"sliding_attention", "chunked_attention"}


def windows(keys: Keys, layers: int, *, default_step: int = 0, default_window: int = 0) -> dict[str, Any]:
    """Return sliding_window and full_attention_step.

    `layer_types` rules where it is written; else every `default_step`-th layer is full (0 = none). A null window is no
    window; an absent one is `default_window`.
    """
    window_key = "attention_chunk_size" if keys.has("attention_chunk_size") else "sliding_window"
    window = keys.whole(
        window_key, default=0 if keys.has(window_key) else default_window, at_least=0, at_most=MAX_CONTEXT
    )
    types = keys.listed("layer_types", of=str, length=layers)
    if types is None:
        return _window_fields(keys, window, [not _every(index, default_step) for index in range(layers)])
    unknown = sorted(set(types) - WINDOWED - {"full_attention"})
    if unknown:
        keys.refuse(f"layer_types has '{unknown[0]}'; full_attention and windows are all that can be planned")
    return _window_fields(keys, window, [kind in WINDOWED for kind in types])


def upper_layer_windows(keys: Keys, layers: int) -> dict[str, Any]:
    """Return the window fields of Qwen's files: off unless use_sliding_window, and from max_window_layers upwards."""
    if not keys.flag("use_sliding_window", False):
        return {}
    if keys.has("layer_types"):
        return windows(keys, layers)
    first = keys.whole("max_window_layers", default=28, at_least=0, at_most=MAX_LAYERS)
    window = keys.whole("sliding_window", default=4096, at_least=0, at_most=MAX_CONTEXT)
    return _window_fields(keys, window, [index >= first for index in range(layers)])


def expert_layers(keys: Keys, flags: Sequence[bool]) -> dict[str, int]:
    """Return leading_dense_layers and layer_step of the layers that have experts.

    Raises SpecError when no such pattern says the same.
    """
    with_experts = [index for index, flag in enumerate(flags) if flag]
    if not with_experts:
        keys.refuse("no layer has experts, though experts are given")
    first, *others = with_experts
    step = others[0] - first if others else len(flags) - first
    leading = first + 1 - step
    if leading < 0 or with_experts != list(range(first, len(flags), step)):
        keys.refuse("the layers with experts are not every k-th after some leading dense ones; no other can be planned")
    return {"leading_dense_layers": leading, "layer_step": step}


def _window_fields(keys: Keys, window: int, windowed: Sequence[bool]) -> dict[str, Any]:
    if not window or not any(windowed):
        return {}
    if all(windowed):
        return {"sliding_window": window}
    step = list(windowed).index(False) + 1
    if step == 1 or list(windowed) != [not _every(index, step) for index in range(len(windowed))]:
        keys.refuse("the layers with full attention are not every k-th; nothing else can be planned")
    return {"sliding_window": window, "full_attention_step": step}


def _every(index: int, step: int) -> bool:
    """Whether a layer is a step-th one, the step-th first; never with step 0."""
    return step > 0 and (index + 1) % step == 0
