"""accelerate: load_config_from_file of the YAML, and the plugins that `accelerate launch` makes of its sections."""

import tempfile
from pathlib import Path

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, TorchContextParallelConfig


def accept(bundle):
    """Load the file, build FSDP's plugin and the mesh, and parse the command line with its arguments."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accelerate.yaml"
        path.write_text(bundle["files"]["accelerate.yaml"])
        config = load_config_from_file(str(path))
        launch = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        assert launch.training_script == "train.py"
    assert config.num_processes == bundle["world"]
    given = {key.removeprefix("parallelism_config_"): value for key, value in config.parallelism_config.items()}
    strategy = given.pop("cp_comm_strategy", None)
    handler = {"cp_handler": TorchContextParallelConfig(cp_comm_strategy=strategy)} if strategy else {}
    mesh = ParallelismConfig(**given, **handler) if given else None
    if mesh is not None:
        assert mesh.total_size == bundle["world"]
        known = {f"--{key}" for key in config.parallelism_config} | {f"--{key}" for key in config.fsdp_config}
        assert known <= set(launch_command_parser()._option_string_actions), known
    if config.fsdp_config:
        options = {key.removeprefix("fsdp_"): value for key, value in config.fsdp_config.items()}
        FullyShardedDataParallelPlugin(
            fsdp_version=options["version"],
            reshard_after_forward=options["reshard_after_forward"],
            cpu_offload=options["offload_params"],
            auto_wrap_policy=options["auto_wrap_policy"].lower(),
            state_dict_type=options["state_dict_type"],
            activation_checkpointing=options["activation_checkpointing"],
            activation_checkpointing_offload=options["activation_checkpointing_offload"],
        )
    return {"type": str(config.distributed_type), "precision": config.mixed_precision}
