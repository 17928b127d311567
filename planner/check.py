"""What is wrong with a configuration: every rule that it breaks, whether it fits, and what would help."""

from dataclasses import dataclass

from cost_models.specs.parameters import padded_vocab
from cost_models.specs.units import format_bytes
from planner.document import PlanDocument
from planner.forbidden import BrokenRule
from planner.hosts import HOST_FRACTION
from planner.proposal import Figures, Proposal
from planner.remedies import Remedy, of_proposal

__all__ = ["Checked", "checked"]

# Launchers that give experts the tensor parallelism of everything else unless they are told otherwise.
EXPERTS_TAKE_TP = ("megatron", "bridge")


@dataclass(frozen=True)
class Checked:
    """The answer: `faults` are the rules broken, of every plan and of the target; `shortages` what memory lacks.

    `figures` and `document` are None where the configuration is not legal: such a run has no cost. `remedies` are
    single changes after which it fits, where it does not surely fit as it is.
    """

    proposal: Proposal
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


def checked(proposal: Proposal) -> Checked:
    """The answer to a configuration that somebody proposes."""
    faults = (*proposal.illegal, *proposal.inexpressible)
    notes = (*proposal.notes, *_notes(proposal))
    if proposal.illegal:
        return Checked(proposal, faults, (), notes, None, None, ())
    figures = proposal.figures
    remedies = () if figures.fits else of_proposal(proposal)
    document = proposal.document
    return Checked(proposal, faults, _shortages(proposal), notes, figures, document, remedies)


def _shortages(proposal: Proposal) -> tuple[str, ...]:
    """What the memory of devices and hosts lacks for certain, a sentence each."""
    figures, request = proposal.figures, proposal.request
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


def _notes(proposal: Proposal) -> tuple[str, ...]:
    """What is not wrong and should be known: idle GPUs, padding, defaults of the target."""
    request, layout = proposal.request, proposal.layout
    idle, model = request.cluster.gpus - proposal.world, request.model
    notes = [f"{idle:,} of {request.cluster.gpus:,} GPUs are idle."] if idle > 0 else []
    padded = int(padded_vocab(model.vocab, request.recipe.vocab_multiple, layout["tp"]))
    if padded != model.vocab:
        unit = f"{request.recipe.vocab_multiple} * tp"
        notes.append(f"The vocabulary of {model.vocab:,} is padded to {padded:,}, a multiple of {unit}.")
    if request.target in EXPERTS_TAKE_TP and model.moe is not None and layout["etp"] == 1 < layout["tp"]:
        notes.append(f"etp is 1: {request.target} must be told so, for it takes tp ({layout['tp']}) by default.")
    return tuple(notes)
