"""Which part of the model's full tensors each parameter of a rank holds, and how it is filled.

A parameter is a stack of pieces along its rows: the fused projection of queries, keys and values has three. What fills
it asks a source for rows and columns of full tensors, so values do not depend on how they are sharded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

__all__ = [
    "Held",
    "Part",
    "Piece",
    "Shared",
    "Sharded",
    "Source",
    "fill",
    "held",
    "local_part",
    "replicated_rows",
    "shared_rows",
]

# Ranks that hold the same rows and each have a part of their gradient: none, those of a head's copies, all of tp.
Shared = Literal["none", "copies", "tensor"]


class Part(NamedTuple):
    """A range of rows or columns."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Source(Protocol):
    """Where values come from."""

    def values(self, name: str, rows: Part, columns: Part | None) -> Tensor:
        """[rows, columns] of the full tensor of this name, [rows] of a vector."""
        ...


@dataclass(frozen=True)
class Piece:
    """Rows of a parameter that are rows of one full tensor."""

    name: str
    """Of the full tensor, such as layers.3.attention.query.weight."""
    rows: Part
    """Of the full tensor."""
    columns: Part | None = None
    """Of the full tensor; none of a vector."""
    copies: int = 1
    """Ranks of the tensor-parallel group that hold the same."""
    summed: Shared = "none"
    """Which of them each have a part of the gradient."""
    padding: int = 0
    """Rows of zeros after them."""


class Held(NamedTuple):
    """A parameter, its pieces and the rows of their stack that this rank holds."""

    parameter: nn.Parameter
    pieces: tuple[Piece, ...]
    rows: Part

    def here(self) -> Iterator[tuple[Piece, Part]]:
        """The pieces of which this rank holds rows, with the rows of its local part that they are; no padding."""
        start = 0
        for piece in self.pieces:
            first, last = max(self.rows.start, start), min(self.rows.stop, start + piece.rows.size)
            if first < last:
                yield piece, Part(first - self.rows.start, last - self.rows.start)
            start += piece.rows.size + piece.padding

    def full_rows(self, piece: Piece, here: Part) -> Part:
        """The rows of the piece's full tensor that some local rows are."""
        start = 0
        for other in self.pieces:
            if other is piece:
                break
            start += other.rows.size + other.padding
        offset = self.rows.start + here.start - start + piece.rows.start
        return Part(offset, offset + here.size)


class Sharded(nn.Module):
    """A module whose parameters are declared by their pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: dict[str, tuple[Piece, ...]] = {}

    def declare(self, attribute: str, *pieces: Piece) -> None:
        """Makes an unfilled parameter of some pieces."""
        rows = sum(piece.rows.size + piece.padding for piece in pieces)
        columns = () if pieces[0].columns is None else (pieces[0].columns.size,)
        self.register_parameter(attribute, nn.Parameter(torch.empty(rows, *columns)))
        self.pieces[attribute] = pieces


def replicated_rows(name: str, rows: int, columns: int | None, *, copies: int, partial: bool) -> Piece:
    """A whole tensor on every rank of a tensor-parallel group, each with a part of its gradient if `partial`."""
    summed: Shared = "tensor" if partial and copies > 1 else "none"
    return Piece(name, Part(0, rows), None if columns is None else Part(0, columns), copies, summed)


def held(module: nn.Module) -> Iterator[Held]:
    """The parameters of a module, each once."""
    seen: set[int] = set()
    for part in module.modules():
        if isinstance(part, Sharded):
            for attribute, pieces in part.pieces.items():
                parameter = getattr(part, attribute)
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield Held(parameter, pieces, _held_rows(parameter))


def shared_rows(parameters: Iterable[Held], kind: Shared) -> Iterator[tuple[nn.Parameter, Part]]:
    """Local rows of parameters of whose gradient each rank of a group has a part."""
    for one in parameters:
        yield from ((one.parameter, rows) for piece, rows in one.here() if piece.summed == kind)


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor that may be sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(module: nn.Module, source: Source) -> None:
    """Gives every parameter its values, padding zeros."""
    for one in held(module):
        local = local_part(one.parameter)
        local.zero_()
        for piece, here in one.here():
            values = source.values(piece.name, one.full_rows(piece, here), piece.columns)
            local[here.start : here.stop] = values


def _held_rows(parameter: nn.Parameter) -> Part:
    """The rows of a parameter that are on this rank: FSDP cuts them as torch.chunk does."""
    if not isinstance(parameter, DTensor):
        return Part(0, parameter.shape[0])
    mesh = parameter.device_mesh
    if not parameter.placements[-1].is_shard():
        return Part(0, parameter.shape[0])
    size, rank = mesh.shape[-1], mesh.get_local_rank(mesh.ndim - 1)
    each = -(-parameter.shape[0] // size)
    start = min(rank * each, parameter.shape[0])
    return Part(start, min(start + each, parameter.shape[0]))
