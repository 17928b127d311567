"""Megatron-LM's argument parser and validator, as megatron-core's wheel ships them (megatron.training)."""

import os
import sys

import megatron_wheel  # noqa: F401 - makes the wheel importable
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args

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
