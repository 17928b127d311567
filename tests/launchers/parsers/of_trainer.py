"""The transformers Trainer: the exported Python makes TrainingArguments of the exported JSON."""

import tempfile
from pathlib import Path


def accept(bundle):
    """Run parallelism.py beside its JSON; the arguments build what they hand to accelerate."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in bundle["files"].items():
            (Path(folder) / name).write_text(text)
        path = Path(folder) / "parallelism.py"
        namespace = {"__file__": str(path), "__name__": "parallelism"}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        arguments = namespace["training_arguments"](folder, use_cpu=True, report_to=[])
    mesh = arguments.parallelism_config
    assert mesh is None or mesh.total_size == bundle["world"]
    sharded = bool(arguments.fsdp)
    plugin = arguments.fsdp_plugin_args if sharded else {}
    assert not sharded or plugin["fsdp_version"] == 2
    return {"size": arguments.per_device_train_batch_size, "steps": arguments.gradient_accumulation_steps}
