"""What the planner says of one rank of a plan, in the terms in which a dry run counts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from cost_models import memory
from cost_models import symbols as sym
from cost_models.schedules.table import Kind
from planner.explain.collectives import StepCollective, step_collectives
from planner.explain.setting import Setting

__all__ = ["Prediction"]

# Groups of ranks: the symbols of their size and of the distance of neighbours.
GROUPS = {
    "tensor": ("tp", None),
    "context": ("cp", "tp"),
    "states": ("dp_shard", "dp_stride"),
    "replicas": ("dp_replicate", "replicate_stride"),
    "pipeline": ("pp", "pp_stride"),
}
OF_OPERATORS = {"tensor_parallel": "tensor", "context_parallel": "context"}


@dataclass(frozen=True)
class Prediction:
    """A stage of a plan, costed."""

    setting: Setting

    def symbol(self, name: str) -> float:
        """The value of a symbol of the cost expressions on this stage."""
        return self.setting.symbols([name])[name]

    @cached_property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""
        return int(self.setting.plan.candidate.pipeline.layout["num_microbatches"])

    @cached_property
    def groups(self) -> dict[str, tuple[int, int]]:
        """Ranks of each group and the distance of neighbours; groups of one rank are left out."""
        found = {
            name: (int(self.symbol(size)), 1 if stride is None else int(self.symbol(stride)))
            for name, (size, stride) in GROUPS.items()
        }
        return {name: group for name, group in found.items() if group[0] > 1}

    @cached_property
    def parameters(self) -> float:
        """Elements of the stage's parameters on one tensor-parallel rank."""
        return self._evaluated(sum(memory.stage_parameters()))

    @cached_property
    def owned_parameters(self) -> float:
        """Elements of them whose optimizer states one rank has."""
        return self._evaluated(memory.owned_parameters(*memory.stage_parameters(), sym.shard_optimizer))

    def _evaluated(self, expression: object) -> float:
        return self.setting.evaluated({"value": expression})["value"]

    @cached_property
    def collectives(self) -> tuple[StepCollective, ...]:
        """All of a step but what passes between stages."""
        return step_collectives(self.setting)

    def total(self, kind: str, *purposes: str) -> tuple[float, float]:
        """Calls and bytes of one kind for some purposes, of a step."""
        chosen = [one for one in self.collectives if one.kind == kind and one.purpose in purposes]
        return sum(one.calls for one in chosen), sum(one.sent_bytes for one in chosen)

    def group_of(self, one: StepCollective) -> str:
        """The name of the group that a collective runs on."""
        if one.purpose in OF_OPERATORS:
            return OF_OPERATORS[one.purpose]
        if one.purpose == "recompute":
            return "tensor" if (one.ranks, one.stride) == self.groups.get("tensor") else "context"
        if one.purpose == "gradient_norm_reduce_s":
            return "world"
        if one.purpose == "tied_reduce_s":
            return "both ends"
        if one.purpose.endswith("all_reduce_s"):
            return "data"
        return "replicas" if one.kind == "all_reduce" else "states"

    @cached_property
    def actions(self) -> tuple[tuple[str, int, int], ...]:
        """Kind, virtual stage and micro-batch of what the stage does, in order."""
        table = self.setting.plan.candidate.pipeline.table
        stage_of = table.placement.stage_of()[self.setting.rank]
        return tuple(
            (one.kind.name.lower(), int(stage_of[one.chunk]), one.micro_batch)
            for one in table.rank_actions(self.setting.rank)
        )

    @cached_property
    def messages(self) -> Counter[str]:
        """How many boundary tensors the stage sends and receives in a step, by `send` and `recv`."""
        return Counter(direction for direction in self._messages())

    def _messages(self) -> Iterator[str]:
        rank_of = self.setting.plan.candidate.pipeline.table.placement.rank.tolist()
        forward, backwards = Kind.FORWARD.name.lower(), {Kind.BACKWARD.name.lower(), Kind.INPUT_GRAD.name.lower()}
        for kind, stage, _ in self.actions:
            before = stage > 0 and rank_of[stage - 1] != self.setting.rank
            after = stage + 1 < len(rank_of) and rank_of[stage + 1] != self.setting.rank
            if kind == forward:
                yield from ("recv",) * before + ("send",) * after
            elif kind in backwards:
                yield from ("recv",) * after + ("send",) * before
