"""Any rank of a job of any size in one process: a world that is not there, tensors without data, collectives counted.

Parameters and activations are meta tensors, which have shapes and no memory. Collectives on them reach kernels of ours,
which write down what would have been sent. torch's fake process group lends the groups their ranks.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeWork
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from runtime.groups import forget_groups

__all__ = ["META", "Collective", "Traffic", "counted", "fake_world"]

META = torch.device("meta")
BACKEND = "cpu:fake,meta:fake"
# What stands for a number that nobody computed.
ANY_NUMBER = 1.0


class Collective(NamedTuple):
    """A kind of operation on a group: all_gather, reduce_scatter, all_reduce, send or recv."""

    kind: str
    ranks: tuple[int, ...]
    """Global ranks of its group."""


class Traffic:
    """How often each collective was called, and with how many bytes: of the whole tensor that it gathers or reduces."""

    def __init__(self) -> None:
        self.calls: dict[Collective, int] = {}
        self.sent_bytes: dict[Collective, int] = {}

    def add(self, kind: str, tensor: Tensor, group: Any) -> None:
        """Counts one call."""
        ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(group)))
        if len(ranks) > 1:
            one = Collective(kind, ranks)
            self.calls[one] = self.calls.get(one, 0) + 1
            self.sent_bytes[one] = self.sent_bytes.get(one, 0) + tensor.numel() * tensor.element_size()


@contextmanager
def fake_world(rank: int, size: int) -> Iterator[None]:
    """This process as one rank of a world of its own; `build` then makes any rank of a job on META."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    _register_meta_device()
    dist.init_process_group(BACKEND, rank=rank, world_size=size, store=FakeStore())
    assert dist.group.WORLD is not None
    dist.group.WORLD._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)  # one of two, for torch to ask
    validate = FSDPParamGroup._validate_no_meta_params
    FSDPParamGroup._validate_no_meta_params = lambda _: None
    try:
        yield
    finally:
        FSDPParamGroup._validate_no_meta_params = validate
        dist.destroy_process_group()
        # What is kept by the shape of a mesh would be taken for that of the next rank.
        forget_groups()
        _clear_sharding_prop_cache()


@contextmanager
def counted() -> Iterator[Traffic]:
    """Counts the collectives on meta tensors in the block; a number read from a meta tensor is ANY_NUMBER in it."""
    traffic = Traffic()
    collectives, numbers = torch.library.Library("c10d", "IMPL"), torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # reading a number already has a kernel, which only raises
            numbers.impl("_local_scalar_dense", lambda _: ANY_NUMBER, "Meta")
            for name, kernel in _kernels(traffic).items():
                collectives.impl(name, kernel, "Meta")
        yield traffic
    finally:
        collectives._destroy()
        numbers._destroy()


def _kernels(traffic: Traffic) -> dict[str, Any]:
    """The operations of torch.distributed that the runtime uses, by name; any other fails, for want of a kernel."""

    def all_gather(output: Tensor, _: Tensor, group: Any, *__: Any) -> tuple[Tensor, Any]:
        traffic.add("all_gather", output, group)
        return output, FakeWork().boxed()

    def reduce_scatter(output: Tensor, whole: Tensor, group: Any, *_: Any) -> tuple[Tensor, Any]:
        traffic.add("reduce_scatter", whole, group)
        return output, FakeWork().boxed()

    def all_reduce(tensors: list[Tensor], group: Any, *_: Any) -> tuple[list[Tensor], Any]:
        for tensor in tensors:
            traffic.add("all_reduce", tensor, group)
        return tensors, FakeWork().boxed()

    def message(kind: str) -> Any:
        def kernel(tensors: list[Tensor], group: Any, *_: Any) -> Any:
            for tensor in tensors:
                traffic.add(kind, tensor, group)
            return FakeWork().boxed()

        return kernel

    return {
        "_allgather_base_": all_gather,
        "_reduce_scatter_base_": reduce_scatter,
        "allreduce_": all_reduce,
        "send": message("send"),
        "recv_": message("recv"),
    }


class _Stream(torch.cpu.Stream):
    """A stream whose events are there: FSDP2 wants to see one behind each reduction."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or torch.cpu.Event()


def _register_meta_device() -> None:
    """Makes `meta` a device that FSDP2 can ask for streams, which wait for nothing, as the CPU's."""
    if hasattr(torch, META.type):
        return
    module = ModuleType(f"torch.{META.type}", "Streams and events of a device without memory.")
    vars(module).update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("_")})
    vars(module).update(Stream=_Stream, current_stream=lambda _=None: _Stream(), current_device=lambda: 0)
    torch._register_device_module(META.type, module)
