"""The kinds of layer of a model, and how they repeat along its depth."""

from functools import cache
from typing import NamedTuple


class LayerKind(NamedTuple):
    """What tells layers of one model apart: the attention window in tokens (0 = full) and experts or a dense MLP."""

    window: int
    moe: bool


class LayerPattern(NamedTuple):
    """A model as leading + period * repeats + trailing; `period` is the unit that is dealt out to pipeline stages."""

    leading: tuple[LayerKind, ...]
    period: tuple[LayerKind, ...]
    repeats: int
    trailing: tuple[LayerKind, ...]

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, in order."""
        return self.leading + self.period * self.repeats + self.trailing


@cache
def layer_kinds(
    layers: int, *, window: int, full_attention_step: int, leading_dense: int, moe_step: int
) -> tuple[LayerKind, ...]:
    """Return the kind of every layer; `moe_step` 0 = no layer has experts.

    Every `full_attention_step`-th layer has full attention (the step-th first; 0 = none has, when there is a window),
    every `moe_step`-th layer after the leading dense ones has experts (the step-th first).
    """

    def kind(index: int) -> LayerKind:
        full = full_attention_step > 0 and (index + 1) % full_attention_step == 0
        after = index - leading_dense
        return LayerKind(0 if full else window, moe_step > 0 and after >= 0 and (after + 1) % moe_step == 0)

    return tuple(kind(index) for index in range(layers))


@cache
def layer_pattern(kinds: tuple[LayerKind, ...], leading: int) -> LayerPattern:
    """Return the pattern of some kinds after `leading` layers: the shortest period, as often as it fits.

    >>> full, windowed = LayerKind(0, False), LayerKind(1024, False)
    >>> layer_pattern((windowed, full, windowed, full, windowed), 0).repeats
    2
    """
    rest = kinds[leading:]
    length = next(step for step in range(1, len(rest) + 1) if rest[step:] == rest[:-step])
    repeats = len(rest) // length
    return LayerPattern(kinds[:leading], rest[:length], repeats, rest[repeats * length :])
