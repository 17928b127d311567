"""Grouped-query attention, its heads dealt out over the tensor-parallel group."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cost_models.specs.model import ModelSpec
from runtime.collectives import gather_sequence, leave
from runtime.constants import Constants
from runtime.context import ContextParallel
from runtime.groups import TensorParallel
from runtime.linear import Linear, Norm, column_pieces, equal_part, row_parallel
from runtime.parameters import Part
from runtime.recomputation import Forgetting
from runtime.rerun import run_again

__all__ = ["Attention", "fused_attention", "rotated"]


class Attention(nn.Module):
    """The attention half of a layer, behind its norm."""

    def __init__(
        self,
        name: str,
        model: ModelSpec,
        constants: Constants,
        tensor: TensorParallel,
        context: ContextParallel,
        *,
        window: int,
        recompute: frozenset[str],
    ) -> None:
        super().__init__()
        self.tensor, self.context = tensor, context
        self.window, self.window_kind = window, model.window_kind
        self.head_dim = model.head_dim
        self.theta = constants.rope_theta if model.positions == "rope" else None
        self.recomputes_core = "core_attention" in recompute
        queries = equal_part(model.heads, tensor)
        pairs = _key_value_heads(model.kv_heads, tensor)
        self.widths = [heads.size * model.head_dim for heads in (queries, pairs, pairs)]
        self.qkv = Linear(
            column_pieces(f"{name}.query", _scaled(queries, model.head_dim), model.hidden),
            column_pieces(f"{name}.key", _scaled(pairs, model.head_dim), model.hidden, copies=tensor.copies),
            column_pieces(f"{name}.value", _scaled(pairs, model.head_dim), model.hidden, copies=tensor.copies),
            bias=model.qkv_bias,
        )
        output = row_parallel(f"{name}.output", model.hidden, _scaled(queries, model.head_dim), tensor)
        self.output = Linear(output, bias=model.attention_output_bias, adds_bias=False)
        self.query_norm, self.key_norm = _query_key_norms(name, model, constants, tensor)
        self.by_head = model.qk_norm == "head"

    def forward(self, hidden: Tensor, forgetting: Forgetting) -> Tensor:
        """[b, s or s / tp, h] from [b, s, h], which every rank of the group has whole.

        s tokens are those of this rank's chunks where the context is shared.
        """
        query, key, value = self.qkv(hidden).split(self.widths, dim=-1)
        query, key = self._normed(query, self.query_norm), self._normed(key, self.key_norm)
        query, key, value = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in (query, key, value))
        if self.theta is not None:
            query, key = rotated(query, key, self.context.positions(hidden.shape[1], hidden.device), self.theta)
            value = value.clone()  # as a part of the projection it would keep all of it for the backward
        if self.recomputes_core:
            attended = run_again(self._core, query, key, value, Forgetting())
        else:
            attended = self._core(query, key, value, forgetting)
        partial = self.output(attended.transpose(1, 2).flatten(2))
        return self.output.add_bias(leave(partial, self.tensor))

    def _normed(self, projection: Tensor, norm: Norm | None) -> Tensor:
        if norm is None:
            return projection
        if not self.by_head:
            return norm(projection)
        return norm(projection.unflatten(-1, (-1, self.head_dim))).flatten(-2)

    def _core(self, query: Tensor, key: Tensor, value: Tensor, forgetting: Forgetting) -> Tensor:
        if self.context.size > 1:
            return self._core_of_chunks(query, key, value, forgetting)
        length = query.shape[-2]
        if not 0 < self.window < length:
            return fused_attention(query, key, value, None)
        token = torch.arange(length, device=query.device)
        return fused_attention(query, key, value, self._mask(token, token))

    def _core_of_chunks(self, query: Tensor, key: Tensor, value: Tensor, forgetting: Forgetting) -> Tensor:
        """The attention of this rank's queries to the keys of all; those are gathered again for the backward."""
        heads, length = query.shape[1:3]

        def gathered(part: Tensor) -> Tensor:
            whole = gather_sequence(part.transpose(1, 2), self.context).transpose(1, 2)
            # Fused kernels that take a mask know no groups of queries.
            return whole.repeat_interleave(heads // part.shape[1], dim=1)

        own = self.context.positions(length, query.device)
        mask = self._mask(own, self.context.all_positions(length, query.device))
        return fused_attention(query, forgetting.forget(gathered, key), forgetting.forget(gathered, value), mask)

    def _mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[queries, keys] true where a token at one position attends to that at another."""
        behind = queries[:, None] - keys[None, :]
        if not self.window:
            return behind >= 0
        first = queries[:, None] % self.window if self.window_kind == "chunked" else self.window - 1
        return (behind >= 0) & (behind <= first)


def _key_value_heads(heads: int, tensor: TensorParallel) -> Part:
    """This rank's key and value heads: a share of them, or one that its neighbours hold too."""
    if tensor.copies == 1:
        return equal_part(heads, tensor)
    head = tensor.rank // tensor.copies
    return Part(head, head + 1)


def _scaled(part: Part, factor: int) -> Part:
    return Part(part.start * factor, part.stop * factor)


def _query_key_norms(
    name: str, model: ModelSpec, constants: Constants, tensor: TensorParallel
) -> tuple[Norm | None, Norm | None]:
    """Norms of queries and of keys; each rank's gradient of their weights comes from its own heads alone."""
    if model.qk_norm == "none":
        return None, None
    query, key = (1, 1) if model.qk_norm == "head" else (model.heads, model.kv_heads)
    return (
        Norm(f"{name}.query_norm", query * model.head_dim, model, constants, tensor, partial=True),
        Norm(f"{name}.key_norm", key * model.head_dim, model, constants, tensor, partial=True),
    )


def rotated(query: Tensor, key: Tensor, positions: Tensor, theta: float) -> list[Tensor]:
    """Queries and keys [b, heads, s, d] turned by their positions [s], in halves of a head (Su et al. 2021)."""
    width = query.shape[-1]
    precise = torch.promote_types(query.dtype, torch.float32)
    exponents = torch.arange(0, width, 2, device=query.device, dtype=precise) / width
    angles = torch.outer(positions.to(precise), theta**-exponents)
    cosine, sine = (torch.cat([part, part], dim=-1).to(query.dtype) for part in (angles.cos(), angles.sin()))

    def turned(heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        return heads * cosine + torch.cat([-second, first], dim=-1) * sine

    return [turned(query), turned(key)]


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Fused attention: causal, or of what the mask [queries, keys] lets through."""
    if query.is_meta:  # which knows unfused attention alone; the CPU's fused one keeps as little as a GPU's
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return fused(query, key, value, is_causal=mask is None, attn_mask=mask)[0]
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
