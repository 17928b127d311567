"""Every rule of the table, as whoever writes a configuration meets it: what breaks it is refused by that id."""

from functools import lru_cache
from typing import Any

import pytest

from planner import launchers
from planner.document import PlanDocument, Recompute
from planner.proposal import Proposal, of_text
from planner.request import build_request
from planner.rules import RULES, Rule

Case = tuple[str, str, dict[str, Any]]

JOB: dict[str, Any] = {"model": "llama3-8b", "gpus": 64, "gpu": "h100", "seq_len": "8k", "global_batch": 64}
LAYERS = "model.layers=8"
EXPERTS = {"model": "mixtral-8x7b"}
WINDOWS = {"model": "gemma2-2b"}
TIED = {"overrides": [LAYERS, "model.tie_embeddings=true"]}
FEW_KV_HEADS = {"overrides": [LAYERS, "model.kv_heads=2"]}
ODD_VOCABULARY = {"overrides": [LAYERS, "model.vocab=50257"]}
ODD_SIZES = {"overrides": [LAYERS, "model.heads=30", "model.kv_heads=6", "model.ffn=126"]}
FLEXIBLE = {"schedule": "flexible"}
WHOLE = "zero_stage=3,offload_weights=1,offload_gradients=1,offload_optimizer=1"

# By id, or by the end of it where launchers share the rule: a configuration that obeys, one that breaks it, their job.
LEGAL: dict[str, Case] = {
    "degrees-multiply": ("tp=8,dp=8", "tp=8,dp=9", {}),
    "tp-divides-heads": ("tp=2", "tp=4", ODD_SIZES),
    "tp-divides-ffn": ("tp=2", "tp=4", ODD_SIZES),
    "tp-divides-shared-ffn": ("tp=4", "tp=4", {"model": "deepseek-v2-lite"}),
    "tp-splits-kv-heads": ("tp=2", "tp=4", ODD_SIZES),
    "tp-divides-sequence": ("tp=2", "tp=4", {"seq_len": "8190"}),
    "sequence-parallel-needs-tp": ("tp=2,sequence_parallel=true", "tp=1,sequence_parallel=true", {}),
    "stages-have-layers": ("pp=8", "pp=9,dp=1", {}),
    "stages-hold-all-layers": ("pp=2,stage_layers=3+5", "pp=2,stage_layers=3+4", {}),
    "batch-divides": ("micro_batch_size=1", "micro_batch_size=3", {}),
    "microbatches-make-batch": ("pp=2,num_microbatches=2", "pp=2,num_microbatches=3", {}),
    "interleaving-needs-whole-groups": ("pp=4,vpp=2,dp=16", "pp=4,vpp=2,dp=16", {}),
    "interleaving-needs-pipeline": ("pp=2,vpp=2", "vpp=2", {}),
    "cp-splits-sequence": ("cp=2", "cp=2", {}),
    "slices-divide-sequence": (
        "pp=2,schedule=slimpipe,slices=4",
        "pp=2,schedule=slimpipe,slices=3",
        {},
    ),
    "cp-switches-heads": ("cp=2,cp_type=ulysses", "cp=4,cp_type=ulysses", FEW_KV_HEADS),
    "ep-divides-experts": ("ep=4", "ep=3", EXPERTS),
    "etp-divides-expert-ffn": ("tp=4,etp=4", "tp=4,etp=3", EXPERTS),
    "experts-fill-stage": ("ep=8,etp=4,tp=4,pp=2", "ep=8,etp=8,tp=8,pp=2", EXPERTS),
    "tp-inside-domain": ("tp=8", "tp=16", {}),
    "shards-and-replicas-make-dp": ("dp_shard=8,dp_replicate=8", "dp_shard=8,dp_replicate=4", {}),
}
# Where one job cannot have both sides, that of the configuration that breaks the rule.
BROKEN_ON: dict[str, dict[str, Any]] = {
    "tp-divides-shared-ffn": {"model": "deepseek-v2-lite", "overrides": ["model.moe.shared_ffn=1410"]},
    "interleaving-needs-whole-groups": {"global_batch": 96},
    "cp-splits-sequence": {"seq_len": "8190"},
}
EXPRESS: dict[str, Case] = {
    "megatron-runs-schedule": ("pp=2,vpp=2", "pp=2,schedule=gpipe", {}),
    "bridge-runs-schedule": ("pp=2,vpp=2", "pp=2,schedule=gpipe", {}),
    "deepspeed-runs-schedule": ("pp=2", "pp=2,vpp=2", {}),
    "nanotron-runs-schedule": ("pp=2,schedule=gpipe", "pp=2,vpp=2", {}),
    "automodel-runs-schedule": ("pp=2,vpp=2,schedule=zb-v", "pp=2,vpp=2,schedule=dualpipe-v", {}),
    "maxtext-runs-schedule": ("pp=2,vpp=2,schedule=breadth-first", "pp=2", {}),
    "runs-schedule": ("pp=2", "pp=2,schedule=slimpipe", {}),
    "groups-fill-pipeline": (
        "pp=4,dp=4,vpp=2,group_size=4",
        "pp=4,dp=4,vpp=2,group_size=5",
        FLEXIBLE,
    ),
    "goes-through-equal-rounds": (
        "pp=4,dp=8,vpp=2,group_size=4",
        "pp=4,dp=8,vpp=2,group_size=5",
        {"global_batch": 160, **FLEXIBLE},
    ),
    "has-no-pipelines": ("tp=1", "pp=2", {}),
    "has-no-sequence-parallel": ("tp=2,sequence_parallel=false", "tp=2,sequence_parallel=true", {}),
    "tp-divides-kv-heads": ("tp=2", "tp=4", FEW_KV_HEADS),
    "tp-divides-vocabulary": ("tp=1", "tp=2", ODD_VOCABULARY),
    "torchtitan-splits-context": ("cp=4", "cp=4,cp_type=ring", {}),
    "deepspeed-splits-context": ("cp=4,cp_type=ulysses", "cp=4", {}),
    "nanotron-splits-context": ("cp=4,cp_type=ring", "cp=4", {}),
    "maxtext-splits-context": ("cp=4,cp_type=ring", "cp=4,cp_type=ulysses", {}),
    "splits-context": ("cp=4", "cp=4,cp_type=hierarchical", {}),
    "splits-context-of-full-attention": ("tp=1", "cp=2", WINDOWS),
    "has-no-expert-parallel": ("tp=1", "ep=8", EXPERTS),
    "has-whole-experts": ("tp=2,etp=1", "tp=2,etp=2", EXPERTS),
    "slices-experts-with-tp": ("tp=2,etp=2", "tp=2,etp=1", EXPERTS),
    "experts-are-data-ranks": ("ep=8", "ep=8,dp_shard=4,dp_replicate=16", EXPERTS),
    "experts-fill-shards": ("ep=8", "ep=8,dp_shard=4,dp_replicate=16", EXPERTS),
    "shards-sequence-beside-experts": (
        "tp=2,ep=8,sequence_parallel=true",
        "tp=2,ep=8,sequence_parallel=false",
        EXPERTS,
    ),
    "has-one-rank-order": ("pp=2", "pp=2,rank_order=tp-cp-ep-pp-dp", {}),
    "has-one-shard-group": ("dp_shard=64", "dp_shard=8,dp_replicate=8", {}),
    "replicas-are-of-shards": ("tp=2,dp_shard=8,dp_replicate=4", "tp=2,dp_shard=1,dp_replicate=32", {}),
    "pipelines-untie-embeddings": ("tp=1", "pp=2", TIED),
    "fills-1f1b": ("pp=8", "pp=8,micro_batch_size=2", {}),
    "automodel-fills-pipeline": ("pp=8,schedule=gpipe", "pp=8,schedule=gpipe,micro_batch_size=2", {}),
    "fills-pipeline": ("pp=8", "pp=8,micro_batch_size=2", {}),
    "has-whole-rounds": ("pp=4,dp=8,schedule=gpipe", "pp=4,dp=16,schedule=gpipe", {"global_batch": 96}),
    "has-rotary-positions-for-sequence": ("tp=1", "tp=1", {}),
    "splits-layers-evenly": ("pp=2", "pp=2,stage_layers=3+5", {}),
    "shards-everything-or-nothing": ("zero_stage=3", "zero_stage=1", {}),
    "shards-optimizer-at-most": ("zero_stage=1", "zero_stage=2", {}),
    "pipelines-keep-gradients-whole": ("pp=2,zero_stage=1", "pp=2,zero_stage=2", {}),
    "reshards-after-forward": ("zero_stage=3", "zero_stage=3,reshard_after_forward=false", {}),
    "shards-gradients-with-pipeline-outside": (
        "pp=2,rank_order=tp-cp-ep-pp-dp,zero_stage=1",
        "pp=2,rank_order=tp-cp-ep-pp-dp,zero_stage=2",
        {},
    ),
    "keeps-gathered-weights-with-fsdp2": (
        "zero_stage=3,reshard_after_forward=true",
        "zero_stage=3,reshard_after_forward=false",
        TIED,
    ),
    "keeps-gathered-weights-with-pipeline": (
        "pp=2,zero_stage=3,reshard_after_forward=false",
        "zero_stage=3,reshard_after_forward=false",
        {},
    ),
    "recomputes-all-or-nothing": ("recompute=full", "recompute=full,recompute_layers_per_chunk=7", {}),
    "recomputes-activation-of-experts": ("recompute=activation", "recompute=activation", {}),
    "recomputes-modules-in-every-layer": ("recompute=norm", "recompute=norm,recompute_layers_per_chunk=7", {}),
    "offloads-states-together": (WHOLE, "zero_stage=3,offload_optimizer=1", {}),
    "shards-precision-aware-optimizer": ("zero_stage=1", "zero_stage=0", {"optimizer": "precision-aware"}),
    "offloads-sharded-optimizer": ("zero_stage=1,offload_optimizer=1", "zero_stage=0,offload_optimizer=1", {}),
    "offloads-gradients-with-optimizer": (
        "zero_stage=1,offload_gradients=1,offload_optimizer=1",
        "zero_stage=1,offload_gradients=1",
        {},
    ),
    "offloads-sharded-weights": ("zero_stage=3,offload_weights=1", "zero_stage=1,offload_weights=1", {}),
    "offloads-checkpoints": (
        "zero_stage=3,recompute=full,offload_activations=1",
        "zero_stage=3,offload_activations=1",
        {},
    ),
    "offloads-activations-of-layers": ("offload_activations=0.5", "pp=2,offload_activations=0.5", {}),
    "offloads-whole-states": ("offload_optimizer=1", "offload_optimizer=0.5", {}),
    "keeps-activations-on-device": ("tp=1", "offload_activations=0.25", {}),
    "keeps-everything-on-device": ("tp=1", "offload_gradients=0.25", {}),
    "keeps-weights-and-gradients-on-device": ("offload_optimizer=1", "offload_weights=0.5", {}),
    "keeps-gradients-and-activations-on-device": ("offload_optimizer=1", "offload_gradients=0.5", {}),
    "computes-in-bf16": ("tp=1", "tp=1", {}),
    "megatron-steps-with-optimizer": ("tp=1", "tp=1", {}),
    "bridge-steps-with-optimizer": ("tp=1", "tp=1", {}),
    "steps-with-optimizer": ("tp=1", "tp=1", {}),
}
BROKEN_ON |= {
    "has-rotary-positions-for-sequence": {"seq_len": "16k"},
    "computes-in-bf16": {"precision": "fp8"},
    "megatron-steps-with-optimizer": {"optimizer": "adamw-8bit"},
    "bridge-steps-with-optimizer": {"optimizer": "adamw-8bit"},
    "steps-with-optimizer": {"optimizer": "precision-aware"},
}
OBEYED_ON = {"recomputes-activation-of-experts": EXPERTS}
# What no pairs can say, for they are of all stages or name one of the sets: changes of the first stage of a document.
IN_DOCUMENTS: dict[str, dict[str, Any]] = {
    "has-one-zero": {"zero_stage": 0},
    "has-one-recompute": {"recompute": Recompute(set=("norm",), layers=4)},
    "has-one-offload": {"offload": {"weights": 0.0, "gradients": 0.0, "optimizer": 0.5, "activations": 0.0}},
    "recomputes-full-or-selective": {"recompute": Recompute(set=("norm", "full"), layers=4)},
}


def end_of(rule: Rule) -> str:
    """The id without the launcher's name."""
    return rule.id.removeprefix(rule.launcher + "-")


def key_of(rule: Rule, cases: dict[str, Any]) -> str | None:
    """The name of the rule's own case, else of its kind's, None where there is none."""
    return next((name for name in (rule.id, end_of(rule)) if name in cases), None)


@lru_cache
def proposed(text: str, changes: tuple[tuple[str, Any], ...]) -> Proposal:
    """The configuration of a text on the job with some changes; it knows its document once that was asked for."""
    flags = {**JOB, "overrides": (LAYERS,)} | dict(changes)
    if "model" in dict(changes) and "overrides" not in dict(changes):
        flags["overrides"] = ()
    return of_text(text, build_request(**flags))


def on(text: str, job: dict[str, Any]) -> Proposal:
    """As `proposed`."""
    return proposed(text, tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in job.items()))


def told(proposal: Proposal, rule: Rule) -> dict[str, str]:
    """Messages by id of what a check for the rule's launcher tells of a configuration: legal rules, then its own."""
    broken = {each.id: each.message for each in proposal.illegal}
    if rule.kind == "legal":
        return broken
    if broken:
        request = proposal.request.replaced(target=rule.launcher)
        for_target = Proposal(request, proposal.layout, proposal.stages, proposal.held_layers)
        return {each.id: each.message for each in for_target.inexpressible}
    return {each.id: each.message for each in launchers.refusals(proposal.document, rule.launcher)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_breaks_a_rule_is_refused_with_its_id_and_what_obeys_is_not(rule: Rule) -> None:
    """As pairs of `plan check`, else as a plan document; the message says what it got or what is missing."""
    changed = key_of(rule, IN_DOCUMENTS)
    if changed is not None:
        document = on("pp=2", {}).document
        assert rule.id not in {each.id for each in launchers.refusals(document, rule.launcher)}
        broken = {each.id: each.message for each in launchers.refusals(_changed(document, changed), rule.launcher)}
    else:
        cases = LEGAL if rule.kind == "legal" else EXPRESS
        key = key_of(rule, cases)
        assert key is not None, f"no configuration of this file breaks {rule.id}"
        obeys, breaks, job = cases[key]
        assert rule.id not in told(on(obeys, OBEYED_ON.get(key, job)), rule)
        broken = told(on(breaks, BROKEN_ON.get(key, job)), rule)
    assert rule.id in broken
    assert "got" in broken[rule.id] or "must" in broken[rule.id]


def _changed(document: PlanDocument, name: str) -> PlanDocument:
    first = document.stages[0]
    changes = dict(IN_DOCUMENTS[name])
    if "offload" in changes:
        changes["offload"] = first.offload.replaced(**changes["offload"])
    return document.replaced(stages=(first.replaced(**changes), *document.stages[1:]))


def test_no_case_is_left_over() -> None:
    """Every case is of a rule that there is."""
    names = {name for rule in RULES for name in (rule.id, end_of(rule))}
    assert names >= {*LEGAL, *EXPRESS, *IN_DOCUMENTS}
    assert {*BROKEN_ON, *OBEYED_ON} <= {*LEGAL, *EXPRESS}
