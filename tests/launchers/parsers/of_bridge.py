"""Megatron Bridge's container holds megatron-core's own dataclasses: the overrides are fields of them, and build them.

Bridge itself imports Transformer Engine, which needs CUDA to be built.
"""

import dataclasses
import json

import megatron_wheel  # makes the wheel importable
import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import TransformerConfig
from megatron.training.config.common_config import DistributedInitConfig
from megatron.training.config.training_config import CheckpointConfig, TrainingConfig

megatron_wheel.stand_in_for_transformer_engine()

SECTIONS = {
    "model": TransformerConfig,
    "ddp": DistributedDataParallelConfig,
    "optimizer": OptimizerConfig,
    "dist": DistributedInitConfig,
    "train": TrainingConfig,
    "checkpoint": CheckpointConfig,
}
# Fields that Bridge's own providers and recipes add.
OWN = {"model.seq_length", "dataset.seq_length", "mixed_precision"}
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.uint8}


def accept(bundle):
    """Check every place, and build the dataclasses that refuse combinations."""
    given = {section: {} for section in SECTIONS}
    for line in bundle["files"]["overrides.txt"].splitlines():
        place, _, text = line.partition("=")
        section, _, name = place.partition(".")
        if place in OWN:
            continue
        assert name in {field.name for field in dataclasses.fields(SECTIONS[section])}, place
        given[section][name] = _read(text)
    model = given["model"]
    if model["pipeline_model_parallel_size"] > 1:
        model["pipeline_dtype"] = torch.bfloat16
    sizes = _sizes(json.loads(bundle["files"]["job.json"])["model"])
    latent = {"multi_latent_attention": True} if "mla_up_proj" in model.get("recompute_modules", []) else {}
    config = TransformerConfig(**sizes, **model, **latent, add_bias_linear=False, persist_layer_norm=False)
    DistributedDataParallelConfig(**given["ddp"])
    OptimizerConfig(bf16=True, **{name: TYPES.get(value, value) for name, value in given["optimizer"].items()})
    return {"layers": config.num_layers}


def _sizes(model):
    """What a recipe of Bridge says of the model."""
    sizes = {
        "num_layers": model["layers"],
        "hidden_size": model["hidden"],
        "ffn_hidden_size": model["ffn"],
        "num_attention_heads": model["heads"],
        "num_query_groups": model["kv_heads"],
        "kv_channels": model["head_dim"],
        "bf16": True,
    }
    if model["moe"]:
        sizes |= {"num_moe_experts": model["moe"]["experts"], "moe_ffn_hidden_size": model["moe"]["expert_ffn"]}
    return sizes


def _read(text):
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("'")
