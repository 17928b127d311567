"""Named entries of data/: models, GPUs, clusters, profiles and frameworks, one TOML file each."""

import hashlib
import json
import os
import re
import tomllib
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cost_models.specs.base import Spec
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.data import Kind, data_folder, names
from cost_models.specs.errors import SpecError, UnknownNameError, did_you_mean
from cost_models.specs.files import read_json, read_text
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.hf_config import load_cached_config, load_hf_config
from cost_models.specs.model import ModelSpec
from cost_models.specs.node_groups import MixedCluster
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.scaled_profile import scaled_fields
from cost_models.specs.units import format_bytes, parse_bytes

__all__ = [
    "Capacity",
    "Kind",
    "capacity_bytes",
    "data_folder",
    "default_cluster",
    "digest",
    "key",
    "keys",
    "load_cluster",
    "load_gpu",
    "load_mixed_cluster",
    "load_model",
    "load_model_with_notes",
    "load_profile",
    "load_recipe",
    "measured_gpu",
    "names",
    "nominal_gpu",
]

Loaded = TypeVar("Loaded", bound=Spec)


@dataclass(frozen=True)
class Capacity:
    """Memory of one GPU that a plan may use before any margin, and the sentence that says how it was read."""

    bytes: int
    reading: str


def keys(kind: Kind) -> dict[str, str]:
    """Return the entry of every name and alias of one kind, written as `key` writes them."""
    return {**_aliases(kind, data_folder()), **{key(entry): entry for entry in names(kind)}}


def load_model(name: str) -> ModelSpec:
    """Return a model by name, alias ("meta-llama/Meta-Llama-3-70B"), TOML file, config.json, its folder, or cached id.

    Raises UnknownNameError, and SpecError for a file that cannot be read.
    """
    return load_model_with_notes(name)[0]


def load_model_with_notes(name: str) -> tuple[ModelSpec, tuple[str, ...]]:
    """Return the model of load_model, and a sentence for each thing that reading it assumed or left out."""
    if _is_file(name):
        return _load("models", name, ModelSpec), ()
    if _is_path(name):
        read = load_hf_config(name)
        return read.model, read.notes
    try:
        return _load("models", name, ModelSpec), ()
    except UnknownNameError as error:
        cached = load_hf_config(name) if os.path.exists(name) else load_cached_config(name)
        if cached is None:
            hint = "; nothing is downloaded: give the folder of its config.json" if "/" in name else ""
            message = f"{error}{hint}"
            raise UnknownNameError(message) from None
        return cached.model, cached.notes


def load_gpu(name: str) -> GpuSpec:
    """Return a GPU by name, alias ("h100") or TOML file. Raises UnknownNameError."""
    return _load("gpus", name, GpuSpec)


def load_recipe(name: str) -> FrameworkRecipe:
    """Return a framework recipe by name, alias or TOML file. Raises UnknownNameError."""
    return _load("frameworks", name, FrameworkRecipe)


def load_profile(gpu: str) -> HardwareProfile:
    """Return the hardware profile of a GPU, by any name of the GPU, or of a TOML file. Raises UnknownNameError.

    A file that names `scaled_from` states only what is known of its GPU; the rest is scaled (scaled_profile.py).
    `tables` is the name of a JSON file beside it.
    """
    name = _profile_name(gpu)
    return _profile(name) if _is_file(name) else _catalog_profile(name, data_folder())


@cache
def _catalog_profile(name: str, _: Path) -> HardwareProfile:
    """Return a profile of the catalog, read once a process: a study asks for the same ones again and again."""
    return _profile(name)


def _profile(name: str) -> HardwareProfile:
    fields = _profile_fields(name)
    if "scaled_from" not in fields:
        return HardwareProfile.model_validate(fields)
    base = load_profile(_reference(fields.pop("scaled_from")))
    own = load_gpu(str(fields.get("gpu", name)))
    return HardwareProfile.model_validate(scaled_fields(base, load_gpu(base.gpu), own, fields))


def _profile_fields(name: str) -> dict[str, Any]:
    """Return the fields of a profile, with its tables read from the file that they name."""
    fields = _fields("profiles", name)
    if isinstance(fields.get("tables"), str):
        folder = Path(name).parent if _is_file(name) else data_folder() / "profiles"
        fields["tables"] = read_json(folder / fields["tables"])
    return fields


def measured_gpu(gpu: str) -> str:
    """Return the GPU whose measurements stand in the profile of a GPU: its own name, or that of the one it is like."""
    name = _profile_name(gpu)
    fields = _fields("profiles", name)
    return measured_gpu(fields["scaled_from"]) if "scaled_from" in fields else str(fields.get("gpu", name))


def _reference(name: object) -> str:
    """Return the GPU that a profile is scaled from. Raises SpecError for anything but an entry of the catalog."""
    if not isinstance(name, str) or _is_file(name):  # a file could name itself
        message = f"profile.scaled_from must be a GPU of the catalog, got {name!r}"
        raise SpecError(message)
    return name


def _profile_name(gpu: str) -> str:
    """Return the profile that belongs to any name of a GPU; a file is its own."""
    known = _is_file(gpu) or key(gpu) in map(key, names("profiles"))
    return gpu if known else load_gpu(gpu).name


def load_cluster(name: str, gpus: int, *, known: GpuSpec | None = None) -> ClusterSpec:
    """Return a cluster of `gpus` GPUs by preset name, alias or TOML file. Raises UnknownNameError or SpecError.

    A file may name the GPU that is `known`, which no catalog needs to have.
    """
    fields = _fields("clusters", name)
    if isinstance(fields.get("gpu"), str):
        is_known = known is not None and key(fields["gpu"]) == key(known.name)
        fields["gpu"] = known if is_known else load_gpu(fields["gpu"])
    return ClusterSpec.model_validate({**fields, "gpus": gpus})


def load_mixed_cluster(name: str) -> MixedCluster | None:
    """Return the cluster of a TOML file that has `groups` of nodes; None for a preset and any other file."""
    if not _is_file(name):
        return None
    fields = _fields("clusters", name)
    return MixedCluster.model_validate(fields) if "groups" in fields else None


def default_cluster(gpu: str, gpus: int) -> ClusterSpec:
    """Return `gpus` GPUs in the nodes a GPU is usually sold in (DGX-like). Raises UnknownNameError."""
    wanted = load_gpu(gpu).name
    for name in names("clusters"):
        entry = _entry("clusters", name)
        if entry.get("gpu") == wanted and entry.get("catalog", {}).get("default_for_gpu"):
            return load_cluster(name, gpus)
    message = f"no cluster preset for GPU '{wanted}'; name one of {', '.join(names('clusters'))} or a file"
    raise UnknownNameError(message)


def nominal_gpu(memory_bytes: int) -> GpuSpec | None:
    """Return the GPU that a memory size alone stands for (80 GB: H100 SXM), None when no card is sold with it."""
    for name in names("gpus"):
        entry = _entry("gpus", name)
        if entry["nominal_memory_bytes"] == memory_bytes and entry.get("catalog", {}).get("default_for_memory"):
            return load_gpu(name)
    return None


def capacity_bytes(gpu: GpuSpec | None, mem: str | None) -> Capacity:
    """Return the memory of one GPU: measured when `mem` is the size on its label ("80GB"), else `mem` literally.

    Without `mem` the GPU's measured memory holds; without `gpu` the size is literal. Raises UnitError.
    """
    if mem is None:
        if gpu is None:
            message = "a memory size or a GPU is needed"
            raise SpecError(message)
        return Capacity(gpu.usable_memory_bytes, f"{gpu.name} has {format_bytes(gpu.usable_memory_bytes)} usable")
    size = parse_bytes(mem)
    if gpu is not None and size.is_nominal and size.bytes == gpu.nominal_memory_bytes:
        label = f"{size.written} is the nominal size of {gpu.name}"
        return Capacity(
            gpu.usable_memory_bytes, f"{label}: {format_bytes(gpu.usable_memory_bytes)} usable, as measured"
        )
    return Capacity(size.bytes, f"{size.reading}, taken literally")


def digest(*specs: Spec) -> str:
    """Return the SHA-256 (hex) of the content of some specs, in the order given."""
    content = [[type(spec).__name__, spec.model_dump(mode="json")] for spec in specs]
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _load(kind: Kind, name: str, spec: type[Loaded]) -> Loaded:
    return spec.model_validate(_fields(kind, name))


def _fields(kind: Kind, name: str) -> dict[str, Any]:
    """Return the fields of an entry or of a file, without the catalog's own table."""
    content = _read(Path(name)) if _is_file(name) else _entry(kind, _resolve(kind, name))
    return {field: value for field, value in content.items() if field != "catalog"}


def _is_file(name: str) -> bool:
    return name.endswith(".toml")


def _is_path(name: str) -> bool:
    """Whether a name cannot be a catalog entry or an id: "./llama3-8b", "/models/mine", "mine/config.json"."""
    return name.endswith((".json", "/")) or name.startswith((".", "/", "~"))


def _entry(kind: Kind, name: str) -> dict[str, Any]:
    return deepcopy(_once_read(data_folder() / kind / f"{name}.toml"))


@cache
def _once_read(path: Path) -> dict[str, Any]:
    """Return the content of an entry of the catalog, which stays as it is while a process runs; it is not to change."""
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises SpecError."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{path} is not valid TOML: {reason}"
        raise SpecError(message) from error


def _resolve(kind: Kind, name: str) -> str:
    """Return the entry that a name or an alias stands for. Raises UnknownNameError."""
    wanted, entries = key(name), names(kind)
    direct = {key(entry): entry for entry in entries}
    if wanted in direct:  # the usual case: no other file is read
        return direct[wanted]
    aliases = _aliases(kind, data_folder())
    if wanted in aliases:
        return aliases[wanted]
    hint = did_you_mean(name, entries) or f"; known: {', '.join(entries)}"
    message = f"unknown {kind.removesuffix('s')} '{name}'{hint}"
    raise UnknownNameError(message)


@cache
def _aliases(kind: Kind, folder: Path) -> dict[str, str]:
    """Return the entry of every alias of one kind."""
    entries = {path.stem: _read(path) for path in (folder / kind).glob("*.toml")}
    return {
        key(alias): name for name, entry in entries.items() for alias in entry.get("catalog", {}).get("aliases", [])
    }


def key(name: str) -> str:
    """Return a name without case and separators: "Llama-3_70B" and "llama3-70b" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
