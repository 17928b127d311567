"""Megatron-LM's argument parser and validator, as megatron-core's wheel ships them (megatron.training)."""

import os
import sys
import types
import typing

import typing_extensions

# The wheel is for Python 3.12; of it, the parser uses one name that 3.11's typing lacks.
if not hasattr(typing, "override"):
    typing.override = typing_extensions.override

import torch

# It asks the device for its architecture: a Hopper is assumed.
torch.cuda.get_device_properties = lambda *_, **__: types.SimpleNamespace(major=9, minor=0)
torch.cuda.get_device_capability = lambda *_, **__: (9, 0)

import megatron.core.utils  # noqa: E402
from packaging.version import Version  # noqa: E402

# Transformer Engine needs CUDA to be built: what the parser only compares with is assumed to be there.
megatron.core.utils.get_te_version = lambda: Version("2.9.0")

from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args  # noqa: E402

# What pretrain_gpt.py wants beside the plan, and kernels that this machine lacks.
OTHERS = "--lr 1e-4 --train-iters 10 --mock-data --tokenizer-type NullTokenizer --no-rope-fusion"
UNFUSED = "--no-gradient-accumulation-fusion --no-persist-layer-norm --transformer-impl local"


def accept(bundle):
    """Parse and validate the two argument lists, and build a TransformerConfig of them."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(bundle["world"]))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(bundle["env"])
    lists = bundle["files"]["model.args"], bundle["files"]["parallel.args"], OTHERS, UNFUSED
    sys.argv = ["pretrain_gpt.py", *" ".join(lists).split()]
    arguments = parse_args()
    validate_args(arguments)
    config = core_transformer_config_from_args(arguments)
    return {"data_parallel_size": arguments.data_parallel_size, "layers": config.num_layers}
