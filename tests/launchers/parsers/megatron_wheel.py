"""Makes megatron-core's wheel for Python 3.12 importable on older Pythons, on a Hopper that is not there."""

import sys
import types
import typing

import typing_extensions

# Of what Python 3.12 has, the parser uses one name.
if not hasattr(typing, "override"):
    typing.override = typing_extensions.override

import torch

torch.cuda.get_device_properties = lambda *_, **__: types.SimpleNamespace(major=9, minor=0)
torch.cuda.get_device_capability = lambda *_, **__: (9, 0)

import megatron.core.utils  # noqa: E402
from packaging.version import Version  # noqa: E402

# Transformer Engine needs CUDA to be built: what the parser only compares with is assumed to be there.
megatron.core.utils.get_te_version = lambda: Version("2.9.0")


class FusedAdam:
    """Transformer Engine's, of whose signature Megatron asks whether it keeps states in other types."""

    def __init__(self, params, master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad):
        raise NotImplementedError


def stand_in_for_transformer_engine():
    """None. From here on its optimizers can be imported, and nothing else; called when Megatron has been imported."""
    for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.optimizers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[name].FusedAdam = FusedAdam
