"""The seconds that a schedule is replayed with, for one or many assignments of options to ranks."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from cost_models.schedules.errors import StageTimesError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Seconds of each pipeline rank. Leading axes, if any, run over assignments and are replayed together."""

    forward_s: FloatArray
    """[..., ranks, chunks] one FORWARD action."""
    input_grad_s: FloatArray
    """[..., ranks, chunks] one INPUT_GRAD action; BACKWARD lasts this and weight_grad_s."""
    weight_grad_s: FloatArray
    """[..., ranks, chunks] one WEIGHT_GRAD action."""
    first_s: FloatArray
    """[..., ranks] work of the rank before its first forward."""
    last_s: FloatArray
    """[..., ranks] work of the rank after its last backward."""
    hop_s: FloatArray
    """[..., ranks] sending over link i, between ranks i and (i + 1) % ranks, either way. It delays the receiver and
    does not occupy the sender."""

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
    ) -> Self:
        """Stage times, broadcast to common leading axes; a scalar first_s, last_s or hop_s holds for every rank.

        Raises StageTimesError when a value is negative or not finite, or when shapes do not fit.
        """
        given = (forward_s, input_grad_s, weight_grad_s, first_s, last_s, hop_s)
        arrays = [np.asarray(value, dtype=np.float64) for value in given]
        for field, array in zip(fields(cls), arrays, strict=True):
            _check_values(field.name, array)
        try:
            cells = np.broadcast_shapes(*(array.shape for array in arrays[:3]))
            ranks = np.broadcast_shapes(cells[:-1], *(array.shape for array in arrays[3:]))
        except ValueError as exc:
            msg = f"{_shapes(cls, arrays)} do not fit together"
            raise StageTimesError(msg) from exc
        if len(cells) < 2 or ranks[-1] != cells[-2] or 0 in ranks + cells:
            msg = (
                f"{_shapes(cls, arrays)} must be [..., ranks, chunks] for the first three and [..., ranks] for the rest"
            )
            raise StageTimesError(msg)
        whole = [np.broadcast_to(array, ranks + cells[-1:]) for array in arrays[:3]]
        return cls(*whole, *(np.broadcast_to(array, ranks) for array in arrays[3:]))

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
        """[..., ranks, chunks] one BACKWARD action."""
        return self.input_grad_s + self.weight_grad_s

    @property
    def work_s(self) -> FloatArray:
        """[..., ranks] t_i: all chunks of a rank, forward and backward, for one micro-batch."""
        work: FloatArray = (self.forward_s + self.backward_s).sum(axis=-1)
        return work


def _check_values(name: str, array: FloatArray) -> None:
    if not np.all(np.isfinite(array) & (array >= 0)):
        worst = array[~(np.isfinite(array) & (array >= 0))].flat[0]
        msg = f"{name} must be finite and >= 0, got {worst}"
        raise StageTimesError(msg)


def _shapes(cls: type[StageTimes], arrays: list[FloatArray]) -> str:
    return ", ".join(f"{field.name} {array.shape}" for field, array in zip(fields(cls), arrays, strict=True))
