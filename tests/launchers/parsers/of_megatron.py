"""Megatron-LM's argument parser and validator, as megatron-core's wheel ships them (megatron.training)."""

import argparse
import dataclasses
import os
import sys

import megatron_wheel  # makes the wheel importable
from megatron.core.optimizer import OptimizerConfig
from megatron.training import arguments as megatron_arguments

megatron_wheel.stand_in_for_transformer_engine()

# Its 847 arguments are read off the sources of dataclasses: once for all bundles.
PARSER = megatron_arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
megatron_arguments.add_megatron_arguments = lambda parser: PARSER

# What pretrain_gpt.py wants beside the plan, and kernels that this machine lacks.
OTHERS = "--lr 1e-4 --train-iters 10 --mock-data --tokenizer-type NullTokenizer --no-rope-fusion"
UNFUSED = "--no-gradient-accumulation-fusion --no-persist-layer-norm --transformer-impl local"


def accept(bundle):
    """Parse and validate the two argument lists, and build the configurations of transformer and optimizer of them."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(bundle["world"]))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(bundle["env"])
    lists = bundle["files"]["model.args"], bundle["files"]["parallel.args"], OTHERS, UNFUSED
    sys.argv = ["pretrain_gpt.py", *" ".join(lists).split()]
    arguments = megatron_arguments.parse_args()
    megatron_arguments.validate_args(arguments)
    config = megatron_arguments.core_transformer_config_from_args(arguments)
    names = [field.name for field in dataclasses.fields(OptimizerConfig) if hasattr(arguments, field.name)]
    OptimizerConfig(**{name: getattr(arguments, name) for name in names})
    return {"data_parallel_size": arguments.data_parallel_size, "layers": config.num_layers}
