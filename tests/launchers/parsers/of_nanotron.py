"""nanotron's strict reading of its YAML, as its release 0.4 reads it: the newest one in the package index.

Two keys are of later versions, which are on GitHub alone: they are taken out, and all else is what 0.4 knows.
"""

import logging
import sys
import types

import yaml

# Its logging and its configuration import each other, in an order that only its trainer finds.
quiet = types.ModuleType("nanotron.logging")
quiet.__getattr__ = lambda name: getattr(logging, name, lambda *_, **__: logging.getLogger(name))
sys.modules["nanotron.logging"] = quiet

from nanotron.config import get_config_from_dict  # noqa: E402

LATER = ("context_parallel_size", "recompute_layer")
# What a configuration has beside the plan.
OTHERS = {
    "general": {"project": "any"},
    "tokenizer": {},
    "tokens": {"train_steps": 10},
    "model": {"model_config": {}, "init_method": {"std": 0.02}},
    "optimizer": {
        "weight_decay": 0.1,
        "clip_grad": 1.0,
        "adam_eps": 1e-8,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "torch_adam_is_fused": True,
        "learning_rate_scheduler": {
            "learning_rate": 1e-4,
            "lr_warmup_style": "linear",
            "lr_decay_style": "cosine",
        },
    },
}


def accept(bundle):
    """Build the configuration; unknown keys and wrong types are refused."""
    values = yaml.safe_load(bundle["files"]["nanotron.yaml"])
    assert set(values) <= {*OTHERS, "parallelism"}, set(values)
    later = {name: values["parallelism"].pop(name) for name in LATER}
    config = get_config_from_dict(
        {name: {**OTHERS.get(name, {}), **values.get(name, {})} for name in {*OTHERS, *values}}
    )
    sizes = config.parallelism
    assert sizes.dp * sizes.pp * sizes.tp * later["context_parallel_size"] == bundle["world"]
    assert isinstance(later["recompute_layer"], bool)
    return {"batch": config.global_batch_size, "engine": type(sizes.pp_engine).__name__, "mode": sizes.tp_mode.name}
