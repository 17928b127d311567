"""Axolotl: AxolotlInputConfig, the pydantic model of its YAML."""

import importlib.machinery
import sys
import types

import yaml

# It asks whether this package is there, which only imports beside CUDA.
sys.modules["ring_flash_attn"] = types.ModuleType("ring_flash_attn")
sys.modules["ring_flash_attn"].__spec__ = importlib.machinery.ModuleSpec("ring_flash_attn", None)

from axolotl.utils.schemas.config import AxolotlInputConfig  # noqa: E402
from axolotl.utils.schemas.fsdp import FSDPConfig  # noqa: E402

OTHERS = {
    "base_model": "a/model",
    "datasets": [{"path": "a/data", "type": "alpaca"}],
    "learning_rate": 1e-4,
    "output_dir": "out",
}


def accept(bundle):
    """Validate the keys; unknown ones, which it lets pass, are refused here."""
    values = yaml.safe_load(bundle["files"]["axolotl.yaml"])
    unknown = set(values) - set(AxolotlInputConfig.model_fields)
    assert not unknown, unknown
    assert set(values.get("fsdp_config") or {}) <= set(FSDPConfig.model_fields)
    parsed = AxolotlInputConfig.model_validate({**values, **OTHERS})
    return {"tp": parsed.tensor_parallel_size, "cp": parsed.context_parallel_size}
