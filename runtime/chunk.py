"""Consecutive layers, with the embedding in front of the first and the head behind the last."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import padded_vocab
from planner.document.job import Job, VirtualStage, in_one_piece, virtual_stages
from runtime.collectives import enter_briefly, leave, own_tokens
from runtime.constants import Constants
from runtime.context import ContextParallel
from runtime.groups import TensorParallel
from runtime.layer import Layer
from runtime.linear import Norm
from runtime.parameters import Part, Piece, Sharded, held, replicated_rows
from runtime.recomputation import Forgetting

__all__ = ["EMBEDDING", "VOCABULARY", "Chunk", "chunk_of", "full_shapes", "whole_chunk"]

EMBEDDING, HEAD, HEAD_BIAS = "embedding.weight", "head.weight", "head.bias"
# Full tensors with a row for each entry of the vocabulary.
VOCABULARY = (EMBEDDING, HEAD, HEAD_BIAS)
ALONE = ContextParallel()


def chunk_of(
    job: Job,
    stage: VirtualStage,
    constants: Constants,
    tensor: TensorParallel,
    context: ContextParallel = ALONE,
) -> "Chunk":
    """The chunk of a virtual stage as one rank of the tensor-parallel group holds it, on the default device."""
    stages = job.layout.pp * job.layout.vpp
    chunk = Chunk()
    rows = int(padded_vocab(job.model.vocab, job.recipe.vocab_multiple, tensor.size))
    first = stage.chunk.first_layer
    if stage.index == 0:
        chunk.embedding = Embedding(job.model, constants, tensor, context, rows)
    for offset, recompute in enumerate(stage.recompute):
        index = first + offset
        chunk.layers[str(index)] = Layer(index, job.model, constants, tensor, recompute, context)
    if stage.index == stages - 1:
        chunk.head = Head(job.model, constants, tensor, rows)
    if chunk.embedding is not None and chunk.head is not None and job.model.tie_embeddings:
        chunk.head.weight = chunk.embedding.weight
    return chunk


def whole_chunk(job: Job, constants: Constants) -> "Chunk":
    """The model of a job in one piece, on the default device."""
    alone = in_one_piece(job)
    return chunk_of(alone, virtual_stages(alone)[0], constants, TensorParallel())


def full_shapes(job: Job) -> dict[str, tuple[int, ...]]:
    """[rows, columns], or [rows] of a vector, of every full tensor of a job's model by its name, without padding.

    Of a matrix that is cut out of a stack (queries, keys, values) in the order of the stack.
    """
    with torch.device("meta"):
        chunk = whole_chunk(job, Constants())
    return {
        piece.name: (piece.rows.size,) if piece.columns is None else (piece.rows.size, piece.columns.size)
        for one in held(chunk)
        for piece in one.pieces
    }


class Chunk(nn.Module):
    """What a pipeline rank runs between receiving and sending."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding: Embedding | None = None
        self.layers = nn.ModuleDict()
        self.head: Head | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """[b, s or s / tp, h], or this rank's logits [b, s, padded vocabulary / tp] behind the head.

        `inputs` are tokens [b, s] where the embedding is, else what another chunk returned.
        """
        hidden = inputs if self.embedding is None else self.embedding(inputs)
        for layer in self.layers.values():
            hidden = layer(hidden)
        return hidden if self.head is None else self.head(hidden)


class Embedding(Sharded):
    """Token embedding, its rows dealt out over the tensor-parallel group; learned positions; a norm."""

    weight: nn.Parameter
    positions: nn.Parameter | None

    def __init__(
        self, model: ModelSpec, constants: Constants, tensor: TensorParallel, context: ContextParallel, rows: int
    ) -> None:
        super().__init__()
        self.tensor, self.context = tensor, context
        self.first_row = rows // tensor.size * tensor.rank
        self.offset = model.position_offset
        partial = tensor.sequence_parallel
        self.declare("weight", vocabulary_rows(EMBEDDING, model, tensor, rows, width=model.hidden))
        self.register_parameter("positions", None)
        if model.position_rows:
            self.declare(
                "positions",
                replicated_rows(
                    "positions.weight", model.position_rows, model.hidden, copies=tensor.size, partial=partial
                ),
            )
        self.norm = (
            Norm("embedding_norm", model.hidden, model, constants, tensor, partial=partial)
            if model.embedding_norm
            else None
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, s or s / tp, h] of tokens [b, s]."""
        local = tokens - self.first_row
        is_here = (local >= 0) & (local < self.weight.shape[0])
        found = F.embedding(local.where(is_here, 0), self.weight) * is_here.unsqueeze(-1)
        hidden = leave(found, self.tensor)
        if self.positions is not None:
            rows = self.positions[self.offset + self.context.positions(tokens.shape[1], tokens.device)]
            hidden = hidden + own_tokens(rows, self.tensor)
        return hidden if self.norm is None else self.norm(hidden)


class Head(Sharded):
    """The final norm and the output projection, its rows dealt out over the tensor-parallel group."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, model: ModelSpec, constants: Constants, tensor: TensorParallel, rows: int) -> None:
        super().__init__()
        self.tensor = tensor
        self.norm = Norm("final_norm", model.hidden, model, constants, tensor, partial=tensor.sequence_parallel)
        name = EMBEDDING if model.tie_embeddings else HEAD
        self.declare("weight", vocabulary_rows(name, model, tensor, rows, width=model.hidden))
        self.register_parameter("bias", None)
        if model.head_bias:
            self.declare("bias", vocabulary_rows(HEAD_BIAS, model, tensor, rows, width=None))

    def forward(self, hidden: Tensor) -> Tensor:
        """[b, s, padded vocabulary / tp] logits of this rank's rows."""
        with Forgetting() as forgetting:
            whole = enter_briefly(self.norm(hidden), self.tensor, forgetting)
            logits = F.linear(whole, self.weight)
        return logits if self.bias is None else logits + self.bias


def vocabulary_rows(name: str, model: ModelSpec, tensor: TensorParallel, rows: int, *, width: int | None) -> Piece:
    """This rank's rows of a table with as many rows as the padded vocabulary has."""
    each = rows // tensor.size
    start = min(tensor.rank * each, model.vocab)
    stop = min(start + each, model.vocab)
    columns = None if width is None else Part(0, width)
    return Piece(name, Part(start, stop), columns, padding=each - (stop - start))
