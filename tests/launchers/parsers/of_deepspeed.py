"""DeepSpeedConfig: DeepSpeed's own reading of its JSON."""

import json
import types

import deepspeed.runtime.config as config
from deepspeed.runtime.config import DeepSpeedConfig


def accept(bundle):
    """Build the configuration on a job of that many ranks, and check that all top-level keys are its own."""
    values = json.loads(bundle["files"]["deepspeed.json"])
    config.dist.is_initialized = lambda: True
    config.dist.get_rank = lambda *_, **__: 0
    config.dist.get_world_size = lambda *_, **__: bundle["world"]
    tp = values.get("tensor_parallel", {}).get("autotp_size", 1)
    pp = values.get("pipeline", {}).get("stages", 1)
    cp = values.get("sequence_parallel_size", 1)
    data_ranks = bundle["world"] // (tp * pp * cp)
    mpu = types.SimpleNamespace(get_data_parallel_world_size=lambda: data_ranks)
    parsed = DeepSpeedConfig(values, mpu=mpu)
    if "pipeline.py" in bundle["files"]:
        compile(bundle["files"]["pipeline.py"], "pipeline.py", "exec")
        assert parsed.zero_config.stage < 2, "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"
        assert parsed.pipeline["stages"] == pp
    checkpoints = parsed.activation_checkpointing_config.number_checkpoints
    return {"batch": parsed.train_batch_size, "stage": int(parsed.zero_config.stage), "checkpoints": checkpoints}
