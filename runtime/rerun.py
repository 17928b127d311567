"""Parts of a layer that run again in the backward, once for each micro-batch, however the backward is split.

A checkpoint of torch runs its part again for every call of autograd that needs one of its tensors: a backward that is
split into an input gradient and one call for each weight would run it once for each. Here what was made again stays
until autograd lets go of it: in a whole backward as soon as a tensor has been used, in a split one until the weight
gradients are done, which is what the memory of a plan is counted with.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["run_again"]

Part = Callable[..., Tensor]


class _Done(Exception):  # noqa: N818
    """All tensors that the backward may ask for are there."""


class _Kept:
    """The place of one tensor that autograd wanted to keep; empty until its part ran again."""

    def __init__(self, run: "_Run") -> None:
        self.run = run
        self.tensor: Tensor | None = None

    def unpacked(self) -> Tensor:
        """The tensor, made again where it is not there yet."""
        if self.tensor is None:
            self.run.repeat()
        assert self.tensor is not None
        return self.tensor


class _Run:
    """One forward of a part, and what it takes to repeat it."""

    def __init__(self, part: Part, arguments: tuple[Any, ...]) -> None:
        self._part = part
        self._arguments = tuple(_own(one) for one in arguments)
        # Autograd alone holds the places: those that it has let go of need no tensor.
        self._places: list[weakref.ref[_Kept]] = []

    def place(self, _: Tensor) -> _Kept:
        """A place for the next tensor that autograd keeps."""
        kept = _Kept(self)
        self._places.append(weakref.ref(kept))
        return kept

    def repeat(self) -> None:
        """Fills every place that is still wanted. The part runs up to the last of them."""
        places = iter(self._places)
        left = max(number for number, place in enumerate(self._places, 1) if place() is not None)

        def fill(tensor: Tensor) -> None:
            nonlocal left
            kept = next(places)()
            if kept is not None:
                kept.tensor = tensor.detach()
            left -= 1
            if not left:
                raise _Done

        with torch.enable_grad(), saved_tensors_hooks(fill, _never), suppress(_Done):
            self._part(*(_own(one) for one in self._arguments))


def run_again(part: Part, *arguments: Any) -> Tensor:
    """The result of a part of a layer, of which only the arguments are kept for the backward."""
    if not torch.is_grad_enabled():
        return part(*arguments)
    with saved_tensors_hooks(_Run(part, arguments).place, _Kept.unpacked):
        return part(*arguments)


def _own(argument: Any) -> Any:
    """A tensor apart from the graph that made it, any other argument as it is."""
    return argument.detach().requires_grad_(argument.requires_grad) if isinstance(argument, Tensor) else argument


def _never(_: None) -> Tensor:
    message = "what runs again has no backward of its own"
    raise AssertionError(message)
