"""A pipeline stage that holds what a micro-batch receives only while the micro-batch is in flight.

Torch's own stage (2.13) gives every micro-batch of a step buffers to receive into, which stay for good, and with them
what V schedules hand on within a rank and the gradients of inputs: so many boundary tensors for every micro-batch.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

__all__ = ["Stage"]


class Stage(PipelineStage):
    """A stage of a pipeline whose inputs, outputs and gradients are single tensors."""

    device: torch.device

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> Any:
        """The receiving of an input, into memory that is taken now."""
        self._allocate(self.args_recv_info[fwd_chunk_id])
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> Any:
        """The receiving of an output's gradient, likewise."""
        if self.has_backward and not self.is_last:
            self._allocate(self.grad_recv_info[bwd_chunk_id])
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        with self._nowhere():
            super()._setup_forward_recv_info(num_microbatches, has_backward)

    def _create_grad_recv_info(self, act_send_info: dict[int, Any]) -> Any:
        with self._nowhere():
            return super()._create_grad_recv_info(act_send_info)

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
        received = super()._retrieve_recv_activations(fwd_chunk_id)
        self._let_go(self.args_recv_info, fwd_chunk_id)
        return received

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
        received = super()._retrieve_recv_grads(bwd_chunk_id)
        self._let_go(self.grad_recv_info, bwd_chunk_id)
        return received

    @contextmanager
    def _nowhere(self) -> Iterator[None]:
        """Buffers that are set up meanwhile have shapes and no memory."""
        device, self.device = self.device, torch.device("meta")
        try:
            yield
        finally:
            self.device = device

    def _allocate(self, infos: tuple[Any, ...]) -> None:
        for info in infos:
            if info.buffer is not None and info.buffer.is_meta:
                info.buffer = torch.empty_like(info.buffer, device=self.device)

    def _let_go(self, every: Mapping[int, tuple[Any, ...]], micro_batch: int) -> None:
        """Leaves the shape of what was received, for the next step; the graph of the micro-batch has the tensor."""
        for info in every[micro_batch]:
            if isinstance(info.buffer, Tensor):
                info.buffer = torch.empty_like(info.buffer, device="meta", requires_grad=False)
