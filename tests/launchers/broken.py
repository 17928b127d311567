"""Plans that break one legal rule and no other, as documents could not hold them: what we refuse, for their parsers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cost_models.specs.errors import SpecError
from planner.document import Configuration
from planner.export import JOB_FILE, Bundle, exported, exporters
from planner.launchers import illegalities, refusals
from planner.rules import RULES
from tests.planner.export.configurations import configurations

LEGAL = tuple(rule.id for rule in RULES if rule.kind == "legal")
# Plans of each rule that are told to a parser, and plans that are changed to find them.
OF_RULE, CHANGED = 3, 66
LAYOUT: tuple[Mapping[str, float], ...] = (
    *({name: factor} for name in ("tp", "cp", "ep", "etp", "vpp", "slices") for factor in (2, 3)),
    *({name: factor} for name in ("cp_heads", "dp_shard", "dp_replicate", "micro_batch_size") for factor in (2, 3)),
    *({name: factor, "dp": 1 / factor, "dp_shard": 1 / factor} for name in ("tp", "cp") for factor in (2, 3)),
    {"tp": 3, "etp": 3, "dp": 1 / 3, "dp_shard": 1 / 3},
    {"tp": 1 / 2, "etp": 1 / 2, "dp": 2, "dp_shard": 2},
    {"num_microbatches": 2},
    {"num_microbatches": 1 / 2},
)
EXPERTS: tuple[tuple[str, int], ...] = (("experts", 1), ("expert_ffn", 1), ("shared_ffn", 1))


def broken(launcher: str, seed: int = 3) -> dict[str, list[Configuration]]:
    """By legal rule, a few plans of a launcher that break it alone, beside it a rule of the launcher if need be.

    Each is another export than that of the plan that it was: of what an export does not say, no parser can judge.
    """
    found: dict[str, list[Configuration]] = {}
    beside: dict[str, list[Configuration]] = {}
    for plan in configurations(launcher, CHANGED, seed):
        files = unchecked(plan, launcher).files
        for changed in _changed(plan):
            rules = {each.id for each in illegalities(changed)} or ({HOLDS_ALL} if _drops_layers(changed) else set())
            if len(rules) == 1 and rules <= set(LEGAL):
                of_rule = (beside if refusals(changed, launcher) else found).setdefault(rules.pop(), [])
                if len(of_rule) < OF_RULE and _says_other(changed, launcher, files):
                    of_rule.append(changed)
    return {rule: plans for rule, plans in {**beside, **found}.items() if plans}


def _says_other(changed: Configuration, launcher: str, files: Mapping[str, str]) -> bool:
    """Whether the launcher can be told of a change: other files than `files`, or other ranks; no, where there is no
    such model."""
    try:
        bundle = unchecked(changed, launcher)
    except SpecError:
        return False
    ranks = json.loads(files[JOB_FILE])["gpus_used"]
    own = [name for name in files if name != JOB_FILE]
    return changed.parallelism.gpus_used != ranks or any(bundle.files.get(name) != files[name] for name in own)


HOLDS_ALL = "stages-hold-all-layers"


def unchecked(plan: Configuration, launcher: str) -> Bundle:
    """The export of a plan that nobody judged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporters, "illegalities", lambda _: ())
        patch.setattr(exporters, "refusals", lambda *_: ())
        return exported(plan, launcher)


def _drops_layers(plan: Configuration) -> bool:
    return sum(stage.layers for stage in plan.stages) != plan.model.layers


def _changed(plan: Configuration) -> Iterator[Configuration]:
    """A plan with one thing changed, in every way that is known here; nothing is validated."""
    layout, workload, model = plan.parallelism, plan.workload, plan.model

    def other(**parts: Any) -> Configuration:
        return plan.model_copy(update=parts)

    for factors in LAYOUT:
        values = {name: getattr(layout, name) * factor for name, factor in factors.items()}
        if all(value >= 1 and value == int(value) for value in values.values()):
            whole = {name: int(value) for name, value in values.items()}
            yield other(parallelism=layout.model_copy(update=whole))
    yield other(parallelism=layout.model_copy(update={"sequence_parallel": not layout.sequence_parallel}))
    ranks = layout.tp * layout.cp * layout.pp * layout.dp - 1
    yield other(
        parallelism=layout.model_copy(update={"gpus_used": ranks}),
        cluster=plan.cluster.model_copy(update={"gpus": ranks}),
    )
    for name, more in (("seq_len", 1), ("seq_len", 2), ("seq_len", layout.cp * 2), ("global_batch", 1)):
        yield other(workload=workload.model_copy(update={name: getattr(workload, name) + more}))
    yield other(
        workload=workload.model_copy(update={"global_batch": workload.global_batch * 3 // 2}),
        parallelism=layout.model_copy(update={"num_microbatches": layout.num_microbatches * 3 // 2}),
    )
    for heads, kv_heads, ffn in ((1, 1, model.ffn), (3 * model.heads, 3, model.ffn), (model.heads, model.kv_heads, 1)):
        sizes = {"heads": heads, "kv_heads": kv_heads, "ffn": ffn}
        yield other(model=model.model_copy(update=sizes))
    for name, more in EXPERTS if model.moe else ():
        moe = model.moe.model_copy(update={name: getattr(model.moe, name) + more})
        yield other(model=model.model_copy(update={"moe": moe}))
    yield from _with_a_layer_less(plan)


def _with_a_layer_less(plan: Configuration) -> Iterator[Configuration]:
    """The last layer of the last stage, held by none."""
    last = plan.stages[-1]
    chunk = last.chunks[-1]
    if chunk.layers > 1 and plan.parallelism.pp > 1:
        chunks = (*last.chunks[:-1], chunk.model_copy(update={"layers": chunk.layers - 1}))
        less = last.model_copy(update={"chunks": chunks, "layers": last.layers - 1})
        yield plan.model_copy(update={"stages": (*plan.stages[:-1], less)})
