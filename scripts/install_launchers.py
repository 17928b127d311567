"""`python scripts/install_launchers.py FOLDER`: an environment in which the launchers' own parsers run, without a GPU.

Their packages ask for far more than their parsers import, and for versions that exclude each other: they are installed
without what they ask for, on one CPU build of torch; that of the Python which runs this, where it has the right one.
megatron-core 0.19 is for Python 3.12, but its argument parser is Python that 3.11 reads too: its wheel is unpacked
beside the environment, as MaxText's is. Packages that cannot be had are told and left out; their tests are skipped.
"""

import importlib.metadata
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile
from pathlib import Path

TORCH = "torch==2.13.0"
# What the parsers import, resolved as usual.
NEEDED = (
    *("numpy", "pydantic", "packaging", "pyyaml", "psutil", "einops", "tyro", "torchdata", "tensorboard", "peft"),
    *("hjson", "ninja", "py-cpuinfo", "msgpack", "tqdm", "addict"),
    *("transformers==5.24.0", "accelerate==1.15.0", "datasets<4.8"),
)
# Installed without what they ask for.
LAUNCHERS = (
    ["torchtitan==0.3.0", "torch_checkpointing", "spmd_types==0.2.3", "triton", "torchao"],
    ["megatron-core==0.16.1"],
    ["nemo-automodel==0.7.0", "megatron-fsdp==0.5.0"],
    ["axolotl==0.19.0"],
    ["nanotron==0.4", "dacite"],
    ["deepspeed==0.19.8", "--no-build-isolation"],
)
# Wheels for Python 3.12 of which Python files are read, by the folder that they are unpacked into.
UNPACKED = {"megatron": "megatron-core==0.19.2", "maxtext": "maxtext==0.2.5"}


def main(folder: Path) -> None:
    """Makes the environment in `folder`/environment and unpacks wheels beside it; tells what took how long."""
    started = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {what}", file=sys.stderr, flush=True)

    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    _lend_torch(environment)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, TORCH, "setuptools", "wheel", *NEEDED], check=True)
    tell("what parsers import")
    for packages in LAUNCHERS:
        failed = subprocess.run([*pip, "--no-deps", *packages], check=False).returncode
        tell(f"{'left out: ' if failed else ''}{packages[0]}")
    for name, requirement in UNPACKED.items():
        done = _unpack(environment, requirement, folder / name)
        tell(f"{'' if done else 'left out: '}{requirement}")


def _lend_torch(environment: Path) -> None:
    """Lets the environment import the packages of this Python, if the torch that is wanted is one of them."""
    wanted = TORCH.partition("==")[2]
    try:
        found = importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return
    if found == wanted:
        paths = sysconfig.get_paths(vars={"base": str(environment), "platbase": str(environment)})
        Path(paths["purelib"], "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")


def _unpack(environment: Path, requirement: str, target: Path) -> bool:
    """Whether a wheel for Python 3.12 could be had; it is then a folder for the path."""
    with tempfile.TemporaryDirectory() as downloads:
        wanted = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--dest", downloads, requirement]
        pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "download", "-qq"]
        if subprocess.run([*pip, *wanted], check=False).returncode:
            return False
        with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
            wheel.extractall(target)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
