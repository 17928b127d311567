"""The seconds that a schedule is replayed with, for one or many assignments of options to ranks."""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from cost_models.schedules.errors import StageTimesError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Seconds of each pipeline rank. Leading axes, if any, run over assignments and are replayed together."""

    forward_s: FloatArray
    """[..., ranks, chunks] FORWARD of one micro-batch, all its slices together."""
    input_grad_s: FloatArray
    """[..., ranks, chunks] INPUT_GRAD of one micro-batch; BACKWARD lasts this and weight_grad_s."""
    weight_grad_s: FloatArray
    """[..., ranks, chunks] WEIGHT_GRAD of one micro-batch."""
    first_s: FloatArray
    """[..., ranks] work of the rank before its first forward."""
    last_s: FloatArray
    """[..., ranks] work of the rank after its last backward."""
    hop_s: FloatArray
    """[..., ranks] sending what one action makes over link i, between ranks i and (i + 1) % ranks, either way. It
    delays the receiver and does not occupy the sender."""
    forward_attention_s: FloatArray
    """[..., ranks, chunks] the part of forward_s that grows from slice to slice: causal attention, unless ranks that
    hold early and late slices share it out evenly."""
    backward_attention_s: FloatArray
    """[..., ranks, chunks] the same part of input_grad_s."""

    @classmethod
    def of(
        cls,
        forward_s: npt.ArrayLike,
        input_grad_s: npt.ArrayLike,
        weight_grad_s: npt.ArrayLike,
        *,
        first_s: npt.ArrayLike = 0.0,
        last_s: npt.ArrayLike = 0.0,
        hop_s: npt.ArrayLike = 0.0,
        forward_attention_s: npt.ArrayLike = 0.0,
        backward_attention_s: npt.ArrayLike = 0.0,
    ) -> Self:
        """Stage times, broadcast to common leading axes; a scalar first_s, last_s or hop_s holds for every rank.

        Raises StageTimesError when a value is negative or not finite, when attention lasts longer than what it is part
        of, or when shapes do not fit.
        """
        whole = (forward_s, input_grad_s, weight_grad_s, first_s, last_s, hop_s)
        given = (*whole, forward_attention_s, backward_attention_s)
        arrays = [np.asarray(value, dtype=np.float64) for value in given]
        for field, array in zip(fields(cls), arrays, strict=True):
            _check_values(field.name, array)
        try:
            cells = np.broadcast_shapes(*(array.shape for array in (*arrays[:3], *arrays[6:])))
            ranks = np.broadcast_shapes(cells[:-1], *(array.shape for array in arrays[3:6]))
        except ValueError as exc:
            msg = f"{_shapes(cls, arrays)} do not fit together"
            raise StageTimesError(msg) from exc
        if len(cells) < 2 or ranks[-1] != cells[-2] or 0 in ranks + cells:
            msg = f"{_shapes(cls, arrays)} must be [..., ranks] for first_s, last_s, hop_s, else [..., ranks, chunks]"
            raise StageTimesError(msg)
        shapes = [ranks + cells[-1:]] * 3 + [ranks] * 3 + [ranks + cells[-1:]] * 2
        times = cls(*(np.broadcast_to(array, shape) for array, shape in zip(arrays, shapes, strict=True)))
        _check_part("forward_attention_s", times.forward_attention_s, "forward_s", times.forward_s)
        _check_part("backward_attention_s", times.backward_attention_s, "input_grad_s", times.input_grad_s)
        return times

    @property
    def ranks(self) -> int:
        return int(self.forward_s.shape[-2])

    @property
    def chunks(self) -> int:
        return int(self.forward_s.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the leading axes."""
        return self.forward_s.shape[:-2]

    @property
    def backward_s(self) -> FloatArray:
        """[..., ranks, chunks] BACKWARD of one micro-batch."""
        return self.input_grad_s + self.weight_grad_s

    @property
    def work_s(self) -> FloatArray:
        """[..., ranks] t_i: all chunks of a rank, forward and backward, for one micro-batch."""
        work: FloatArray = (self.forward_s + self.backward_s).sum(axis=-1)
        return work

    def with_slower_ranks(self, part: float) -> "StageTimes":
        """[1 + ranks, ...] these times, of one assignment, and with each rank in turn longer at work by a part."""
        factor = 1.0 + part * np.eye(1 + self.ranks, self.ranks, -1)
        names = [field.name for field in fields(self)]
        longer = {name: getattr(self, name) * factor[..., None] for name in names if getattr(self, name).ndim == 2}
        same = {name: np.broadcast_to(getattr(self, name), factor.shape) for name in names if name not in longer}
        return replace(self, **longer, **same)

    def one_slice(self, slices: int, index: int) -> "StageTimes":
        """The times with one slice as a whole micro-batch: index 0 is the shortest of the slices, the last the longest.

        Its hops are those of a slice already, and first_s and last_s stay what they are.
        """
        forward_s = self.slice_forward_s(slices)[..., index]
        input_grad_s = self.slice_input_grad_s(slices)[..., index]
        return self._of_cells(forward_s, input_grad_s, self.weight_grad_s / slices)

    def mean_slice(self, slices: int) -> "StageTimes":
        """The times with a slice of mean length as a whole micro-batch: any slice, where all take equally long."""
        return self._of_cells(self.forward_s / slices, self.input_grad_s / slices, self.weight_grad_s / slices)

    def _of_cells(self, forward_s: FloatArray, input_grad_s: FloatArray, weight_grad_s: FloatArray) -> "StageTimes":
        none = np.zeros_like(forward_s)
        cells = {"forward_s": forward_s, "input_grad_s": input_grad_s, "weight_grad_s": weight_grad_s}
        return replace(self, **cells, forward_attention_s=none, backward_attention_s=none)

    def slice_forward_s(self, slices: int) -> FloatArray:
        """[..., ranks, chunks, slices] each FORWARD of a micro-batch in so many slices."""
        return _by_slice(self.forward_s, self.forward_attention_s, slices)

    def slice_backward_s(self, slices: int) -> FloatArray:
        """[..., ranks, chunks, slices] each BACKWARD of a micro-batch in so many slices."""
        return _by_slice(self.backward_s, self.backward_attention_s, slices)

    def slice_input_grad_s(self, slices: int) -> FloatArray:
        """[..., ranks, chunks, slices] each INPUT_GRAD of a micro-batch in so many slices."""
        return _by_slice(self.input_grad_s, self.backward_attention_s, slices)

    def slice_weight_grad_s(self, slices: int) -> FloatArray:
        """[..., ranks, chunks, slices] each WEIGHT_GRAD of a micro-batch in so many slices."""
        equal: FloatArray = np.repeat(self.weight_grad_s[..., None] / slices, slices, axis=-1)
        return equal


def attention_excess(slices: int) -> FloatArray:
    """[slices] what share of a micro-batch's causal attention each slice does beyond an equal one.

    Slice j of n attends to itself and to the j slices before it: it does (2 j + 1) / n^2 of the attention, which is
    (2 j + 1 - n) / n^2 more than 1 / n. All together are 0.

    >>> attention_excess(2).tolist()
    [-0.25, 0.25]
    """
    excess: FloatArray = (2 * np.arange(slices) + 1 - slices) / slices**2
    return excess


def _by_slice(whole_s: FloatArray, attention_s: FloatArray, slices: int) -> FloatArray:
    by_slice: FloatArray = whole_s[..., None] / slices + attention_s[..., None] * attention_excess(slices)
    return by_slice


def _check_part(name: str, part_s: FloatArray, whole_name: str, whole_s: FloatArray) -> None:
    if np.any(part_s > whole_s):
        worst = np.flatnonzero(part_s > whole_s)[0]
        msg = f"{name} must be at most {whole_name}, {whole_s.flat[worst]}, got {part_s.flat[worst]}"
        raise StageTimesError(msg)


def _check_values(name: str, array: FloatArray) -> None:
    if not np.all(np.isfinite(array) & (array >= 0)):
        worst = array[~(np.isfinite(array) & (array >= 0))].flat[0]
        msg = f"{name} must be finite and >= 0, got {worst}"
        raise StageTimesError(msg)


def _shapes(cls: type[StageTimes], arrays: list[FloatArray]) -> str:
    return ", ".join(f"{field.name} {array.shape}" for field, array in zip(fields(cls), arrays, strict=True))
