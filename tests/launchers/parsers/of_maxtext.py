"""MaxText's base.yml: every key of an export is one of its keys, of its type; its own checks of meshes and batches.

Its configuration class imports JAX and Google's storage client; the file is all that is read of it.
"""

from importlib.util import find_spec
from pathlib import Path

import yaml

BASE = yaml.safe_load((Path(find_spec("maxtext").submodule_search_locations[0]) / "configs" / "base.yml").read_text())


def accept(bundle):
    """Check keys and types, then what MaxText asserts of devices and pipeline micro-batches."""
    values = yaml.safe_load(bundle["files"]["maxtext.yml"])
    assert values.pop("base_config") == "base.yml"
    for key, value in values.items():
        assert key in BASE, key
        assert isinstance(value, type(BASE[key])) or isinstance(BASE[key], float), key
    mesh = 1
    for key, value in values.items():
        mesh *= value if key.startswith(("ici_", "dcn_")) else 1
    assert mesh == bundle["world"], mesh
    batch = round(values["per_device_batch_size"] * bundle["world"])
    stages = values["ici_pipeline_parallelism"] * values["dcn_pipeline_parallelism"]
    if stages > 1:
        assert values["num_pipeline_microbatches"] % stages == 0
        assert batch % values["num_pipeline_microbatches"] == 0
    return {"batch": batch * values["gradient_accumulation_steps"]}
