"""The file of a measured profile, which `plan profile` writes and `plan --profile FILE` reads: JSON, schema 1.

It holds the devices it was measured on (`cluster`, with the device itself in `cluster.gpu`) and the profile of them
(`profile`, with its tables in the form of data/profiles and its `provenance`). Whatever lies behind a path of this kind
goes through `loads` and `dumps`.

How it is filled
----------------
`cluster.gpu`: a device of the catalog keeps its entry, data-sheet peaks included, with `usable_memory_bytes` as its
driver reports it. Any other device, a CPU too, gets `peak_flops` and `memory_bandwidth_bytes_per_s` that were measured:
the fastest product and the fastest copy of all. Its `name` is what `--gpu` compares. Tiers that no collective was
measured on are the catalog's, or assumed; `cluster.sources` says so. One process on one device has one tier.

`profile`: constants that were not measured come from the catalog's profile of the device, or are stated assumptions;
`sources` names each. Where all of a table is measured let its constants be neutral, so that seconds are met as they
were measured: `peak_fraction` = `reference_share`, `bandwidth_fraction` 1, `sustained_fraction` 1 (or what a long run
reaches of the isolated kernel), `link_fraction` of the tier = `reference_share` of its curves.

Tables are `ShareLattice`s: nodes of each size by name, in the order given here, and shares with the last size fastest.
`cost_models.surface.fitted` makes them from scattered measurements; it keeps what every lattice must obey, that more
work never takes less time. An axis may have one node. The seconds t of a measured shape become a share

    gemm           2 * rows * columns * inner / (peak_flops[dtype] * (t - gemm[dtype].launch_s)); axes rows, columns,
                   inner of the product (rows x inner) @ (inner x columns). The forward has rows = tokens. Input and
                   weight gradients that were measured apart get `by_layout` lattices over their own sizes: the weight
                   gradient has inner = tokens. `layouts` are 1.0 then.
    grouped_gemm   what groups of some rows each reach of the rate of one product with the same columns and inner and
                   32,768 rows (for the weight gradient: inner); axis rows, of one group. By layout.
    attention      2 * batch * heads * queries * keys * head_dim / (peak_flops.bf16 * (t - gemm.bf16.launch_s)), causal,
                   queries = keys; 2.5 times as many for `backward_shares`; axes rows (batch * heads * queries), keys,
                   head_dim. `within` are the first and last measured streams (batch * heads), keys and head_dim.
    elementwise    counted bytes / (memory_bandwidth * t); axis bytes. The bytes counted are those of the same operator
                   in cost_models (blocks.norm, mlp._activation, attention, layers, exchange.global_s), fused or eager
                   as what was timed. The whole time is in it, launch included.
    collectives    bytes * (ranks - 1) / ranks / (line_rate * t), of a send bytes / (line_rate * t); axes ranks, bytes.
                   Bytes as in `CollectiveTables`. `collectives` are of neighbours inside the innermost tier,
                   `collectives_across` of one rank in each of its domains; `kind` and line rate are their tier's.
    copies         bytes / (line_rate * t), pinned; axis bytes.

Constants: `host_launch_s` (part "launch"), `slowdowns` and `overlap` ("interference"; `overlap` is the pair
compute+collective of `slowdowns`; `interference.raised` makes factors fit to be used), `context_bytes` ("context"),
`communicator_bytes` ("communicator"), `fragmentation_fraction` ("allocator"),
`cluster.host_memory_bandwidth_bytes_per_s` ("host_memory"). `provenance.tables` names every part that was measured:
what it does not name counts as not measured, whatever stands there.
"""

import os
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError
from cost_models.specs.files import (
    first_faults,
    is_schema_version,
    json_text,
    read_json,
    reason_of,
    unwritable,
    write_whole,
)
from cost_models.specs.profile import HardwareProfile

__all__ = ["FORMAT", "SCHEMA_VERSION", "MeasuredProfile", "check_writable", "dumps", "loads", "read", "write"]

FORMAT: Literal["meshplan profile"] = "meshplan profile"
SCHEMA_VERSION: Literal[1] = 1


class MeasuredProfile(Spec):
    """A profile and the devices that it was measured on."""

    label: ClassVar[str] = "file"

    format: Literal["meshplan profile"] = FORMAT
    schema_version: Literal[1] = SCHEMA_VERSION
    cluster: ClusterSpec = Field(description="the devices that it was measured on, and the links between them")
    profile: HardwareProfile = Field(description="constants and tables, with their provenance")

    @model_validator(mode="after")
    def _is_of_its_devices(self) -> Self:
        gpu, profile = self.cluster.gpu, self.profile
        if profile.provenance is None:
            message = "profile.provenance is required: it says what was measured, and how"
            raise ValueError(message)
        if profile.gpu != gpu.name:
            message = f"profile.gpu must be {gpu.name}, the device of cluster.gpu, got {profile.gpu}"
            raise ValueError(message)
        if profile.tables is not None and gpu.name not in profile.tables.gpus:
            message = f"profile.tables.gpus must name {gpu.name}, got {list(profile.tables.gpus)}"
            raise ValueError(message)
        without = sorted({*profile.gemm, *(profile.tables.gemm if profile.tables else ())} - {*gpu.peak_flops})
        if without:
            message = f"cluster.gpu.peak_flops must name {', '.join(without)}, which profile.gemm has"
            raise ValueError(message)
        unknown = sorted({tier.links for tier in self.cluster.tiers} - {*profile.link_fraction})
        if unknown:
            message = f"profile.link_fraction must name {', '.join(unknown)}, the links of cluster.tiers"
            raise ValueError(message)
        return self


def dumps(measured: MeasuredProfile) -> str:
    """Return the text of the file; text that was read and is written again does not change."""
    return json_text(measured.model_dump(mode="json"))


def loads(data: Any, source: str) -> MeasuredProfile:
    """Return the profile in the content of a JSON file. Raises SpecError, which names `source` and what is allowed."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        is_plan = isinstance(data, dict) and "parallelism" in data and "stages" in data
        found = "a plan document" if is_plan else f"no 'format': '{FORMAT}'"
        message = f"{source} is not a measured profile: it holds {found}; `plan profile -o FILE` writes one"
        raise SpecError(message)
    version = data.get("schema_version")
    if not is_schema_version(version):
        message = f"{source} is not a measured profile: schema_version must be an integer >= 1, got {version!r}"
        raise SpecError(message)
    if version > SCHEMA_VERSION:
        message = f"{source} was written by schema {version} of profiles, this tool reads up to {SCHEMA_VERSION}"
        raise SpecError(message)
    try:
        return MeasuredProfile.model_validate(data)
    except SpecError as error:
        message = f"{source} is not a valid measured profile: {first_faults(str(error))}"
        raise SpecError(message) from error


def read(path: str | os.PathLike[str]) -> MeasuredProfile:
    """Return the profile in a file. Raises SpecError when it cannot be read or does not hold one."""
    return loads(read_json(os.fspath(path)), os.fspath(path))


def write(measured: MeasuredProfile, path: str | os.PathLike[str]) -> None:
    """Put a profile in a file, whole or not at all. Raises SpecError; a file that was there stays then."""
    try:
        write_whole(dumps(measured), path)
    except (OSError, ValueError) as error:
        message = f"cannot write {os.fspath(path)}: {reason_of(error)}"
        raise SpecError(message) from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Do nothing when a file can be put there, so that a measurement does not end in an error. Raises SpecError."""
    reason = unwritable(path)
    if reason is not None:
        message = f"cannot write {os.fspath(path)}: {reason}"
        raise SpecError(message)
