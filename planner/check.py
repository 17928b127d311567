"""What is wrong with a configuration: every rule that it breaks, whether it fits, and what would help."""

from dataclasses import dataclass

from cost_models.specs.parameters import padded_vocab
from cost_models.specs.units import format_bytes
from planner.configuration import Configuration, Figures
from planner.document import PlanDocument
from planner.forbidden import BrokenRule
from planner.hosts import HOST_FRACTION
from planner.remedies import Remedy, of_configuration

__all__ = ["Checked", "checked"]

# Launchers that give experts the tensor parallelism of everything else unless they are told otherwise.
EXPERTS_TAKE_TP = ("megatron", "bridge")


@dataclass(frozen=True)
class Checked:
    """The answer: `faults` are the rules broken, of every plan and of the target; `shortages` what memory lacks.

    `figures` and `document` are None where the configuration is not legal: such a run has no cost. `remedies` are
    single changes after which it fits, where it does not surely fit as it is.
    """

    configuration: Configuration
    faults: tuple[BrokenRule, ...]
    shortages: tuple[str, ...]
    notes: tuple[str, ...]
    figures: Figures | None
    document: PlanDocument | None
    remedies: tuple[Remedy, ...]

    @property
    def fine(self) -> bool:
        """Whether no rule is broken and no memory surely lacks; one that may not fit is told, and is no fault."""
        return not self.faults and not self.shortages


def checked(configuration: Configuration) -> Checked:
    """The answer to a configuration."""
    faults = (*configuration.illegal, *configuration.inexpressible)
    notes = (*configuration.notes, *_notes(configuration))
    if configuration.illegal:
        return Checked(configuration, faults, (), notes, None, None, ())
    figures = configuration.figures
    remedies = () if figures.fits else of_configuration(configuration)
    document = configuration.document
    return Checked(configuration, faults, _shortages(configuration), notes, figures, document, remedies)


def _shortages(configuration: Configuration) -> tuple[str, ...]:
    """What the memory of devices and hosts lacks for certain, a sentence each."""
    figures, request = configuration.figures, configuration.request
    found = []
    if figures.verdict == "no":
        needed, usable = format_bytes(figures.device_bytes), format_bytes(request.capacity_bytes)
        over = format_bytes(figures.device_bytes - request.capacity_bytes)
        found.append(f"the fullest GPU needs {needed}, usable are {usable}: {over} too much")
    if not figures.host_fits:
        host = request.cluster.host_memory_bytes
        found.append(
            f"a node's host memory must hold {format_bytes(figures.host_bytes)}, of its {format_bytes(host)} "
            f"{HOST_FRACTION:.0%} can be used"
        )
    return tuple(found)


def _notes(configuration: Configuration) -> tuple[str, ...]:
    """What is not wrong and should be known: idle GPUs, padding, defaults of the target."""
    request, layout = configuration.request, configuration.layout
    idle, model = request.cluster.gpus - configuration.world, request.model
    notes = [f"{idle:,} of {request.cluster.gpus:,} GPUs are idle."] if idle > 0 else []
    padded = int(padded_vocab(model.vocab, request.recipe.vocab_multiple, layout["tp"]))
    if padded != model.vocab:
        unit = f"{request.recipe.vocab_multiple} * tp"
        notes.append(f"The vocabulary of {model.vocab:,} is padded to {padded:,}, a multiple of {unit}.")
    if request.target in EXPERTS_TAKE_TP and model.moe is not None and layout["etp"] == 1 < layout["tp"]:
        notes.append(f"etp is 1: {request.target} must be told so, for it takes tp ({layout['tp']}) by default.")
    return tuple(notes)
