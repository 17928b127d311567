"""A measured profile that a command names: the devices it stands for, what it replaces, what a document tells of it."""

from collections.abc import Iterator
from typing import get_args

from cost_models.specs import catalog, measured_profile
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.provenance import MeasuredPart
from cost_models.specs.recipe import FrameworkRecipe
from planner.document import Digests, PlanDocument
from planner.errors import RequestError

__all__ = ["digests", "given", "of_device", "preset", "profile_of", "reaching", "recipe_on", "sentences", "timed_by"]

# Hex digits of a digest that tell profiles apart in a sentence.
SHORT = 12
RECIPE_BYTES = ("communicator_bytes", "fragmentation_fraction")
"""Fields of a recipe that a profile may have measured."""


def given(path: str | None) -> MeasuredProfile | None:
    """The profile in the file that --profile names, None where it names none. Raises SpecError."""
    return None if path is None else measured_profile.read(path)


def preset(measured: MeasuredProfile, gpu: str | None, cluster: str | ClusterSpec | None) -> ClusterSpec:
    """The devices of a profile, in the cluster that --cluster names or as they were measured.

    Raises RequestError where --gpu or --cluster name another device.
    """
    device, name = measured.cluster.gpu, measured.profile.name
    if gpu is not None and not _is_device(gpu, device):
        message = f"--gpu {gpu} contradicts --profile: {name} was measured on {device.name}; give one of them"
        raise RequestError(message)
    if cluster is None:
        return measured.cluster
    named = cluster.name if isinstance(cluster, ClusterSpec) else cluster
    found = cluster if isinstance(cluster, ClusterSpec) else catalog.load_cluster(cluster, 1, known=device)
    if found.gpu.name != device.name:
        message = (
            f"--cluster {named}, whose GPU is {found.gpu.name}, contradicts --profile: {name} was measured on "
            f"{device.name}"
        )
        raise RequestError(message)
    return found.replaced(gpu=device)


def reaching(measured: MeasuredProfile, gpus: int) -> tuple[ClusterSpec, tuple[str, ...]]:
    """So many of a profile's devices: joined as they were measured, else as the catalog knows them, and a sentence.

    Raises RequestError where neither reaches so many.
    """
    reach, device = measured.cluster.tiers[-1].domain_gpus, measured.cluster.gpu
    if reach is None or gpus <= reach:
        return measured.cluster, ()
    try:
        usual = catalog.default_cluster(device.name, gpus)
    except SpecError as error:
        message = (
            f"--gpus must be <= {reach}, which {measured.profile.name} was measured on, got {gpus}; "
            "--cluster FILE says how more of them are joined"
        )
        raise RequestError(message) from error
    note = f"The profile was measured on {reach} GPUs at most: links beyond are those of {usual.name}."
    return usual.replaced(gpu=device), (note,)


def recipe_on(recipe: FrameworkRecipe, profile: HardwareProfile) -> tuple[FrameworkRecipe, tuple[str, ...]]:
    """The recipe with the bytes that a profile has measured, and a sentence for each."""
    changes = {name: getattr(profile, name) for name in RECIPE_BYTES if getattr(profile, name) is not None}
    told = tuple(f"As the profile measured it: recipe.{name}={value:g}." for name, value in changes.items())
    return (recipe.replaced(**changes) if changes else recipe), told


def sentences(measured: MeasuredProfile) -> tuple[str, ...]:
    """What a document tells of the profile that timed it: where it is from, and what it did not measure."""
    profile = measured.profile
    provenance = profile.provenance
    assert provenance is not None  # MeasuredProfile sees to it
    told = (
        f"Operators are timed by the profile {profile.name}, {catalog.digest(profile)[:SHORT]}: measured on "
        f"{provenance.device}, {provenance.date}, torch {provenance.torch}, {provenance.method}."
    )
    # Layers in place add to the operators and no constant stands for them; links across need several kinds of links.
    needless = {"layers"} | ({"collectives_across"} if len(measured.cluster.tiers) == 1 else set())
    parts = [part for part in get_args(MeasuredPart) if part not in needless]
    missing = [part for part in parts if part not in provenance.tables]
    return (told, f"The profile did not measure {', '.join(missing)}: constants stand for it.") if missing else (told,)


def digests(profile: HardwareProfile, other: str) -> Digests:
    """The digests of a document; a measured profile goes by its name, so that it can be asked for."""
    name = profile.name if profile.provenance else None
    return Digests(profile=catalog.digest(profile), catalog=other, profile_name=name)


def timed_by(document: PlanDocument, path: str | None) -> tuple[PlanDocument, HardwareProfile]:
    """A document to be costed anew on the device of a profile's file, and the profile; without a file, its own.

    Raises RequestError where the file is of another device, and as `profile_of`; SpecError where it is no profile.
    """
    measured = given(path)
    if measured is None:
        return document, profile_of(document)
    device, gpu = measured.cluster.gpu, document.cluster.gpu.name
    if device.name != gpu:
        message = f"--profile {path} was measured on {device.name}, the plan is for {gpu}"
        raise RequestError(message)
    return document.replaced(cluster=document.cluster.replaced(gpu=device)), measured.profile


def profile_of(document: PlanDocument) -> HardwareProfile:
    """The profile that timed a document, or the catalog's for its GPU where that is from an older catalog.

    Raises RequestError for a measured profile, which is in no catalog; SpecError when the catalog has none of the GPU.
    """
    wanted = document.digests
    for profile in _in_catalog(document.cluster.gpu.name):
        if wanted.profile_name is None or catalog.digest(profile) == wanted.profile:
            return profile
    if wanted.profile_name is None:
        return catalog.load_profile(document.cluster.gpu.name)  # raises, and says which there are
    message = (
        f"the plan was timed by the measured profile {wanted.profile_name}, {wanted.profile[:SHORT]}, which is not in "
        "the catalog: give its file with --profile FILE"
    )
    raise RequestError(message)


def of_device(profile: HardwareProfile, gpu: str) -> bool:
    """Whether a profile is the catalog's own of a GPU."""
    return profile in tuple(_in_catalog(gpu))


def _in_catalog(gpu: str) -> Iterator[HardwareProfile]:
    try:
        yield catalog.load_profile(gpu)
    except UnknownNameError:
        return


def _is_device(name: str, device: GpuSpec) -> bool:
    """Whether a name that --gpu was given stands for a device."""
    if catalog.key(name) == catalog.key(device.name):
        return True
    try:
        return catalog.load_gpu(name).name == device.name
    except UnknownNameError:
        return False
