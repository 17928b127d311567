"""Which precisions and optimizers each launcher has: facts of the job, so that they are judged before any mesh."""

import numpy as np

from planner.rules.accelerate import ACCELERATE, AXOLOTL, TRAINER
from planner.rules.automodel import AUTOMODEL
from planner.rules.deepspeed import DEEPSPEED
from planner.rules.express import OPTIMIZERS, PRECISIONS, Launcher
from planner.rules.maxtext import MAXTEXT
from planner.rules.megatron import BRIDGE, MEGATRON
from planner.rules.nanotron import NANOTRON
from planner.rules.rule import Rule
from planner.rules.torchtitan import TORCHTITAN

__all__ = ["RECIPE_RULES"]


def _computes_in_bf16(launcher: Launcher, why: str) -> Rule:
    """Matrix products are in bf16."""
    return launcher.rule(
        "computes-in-bf16",
        "precision",
        "mesh",
        "matrix products are in bf16",
        why,
        lambda v: np.equal(v["precision"], 0),
        lambda v: f"precision must be bf16, got {PRECISIONS[int(v['precision'])]}",
        precision=PRECISIONS.index("fp8"),
    )


def _steps_with(launcher: Launcher, why: str, *names: str) -> Rule:
    """Only some optimizers are there."""
    indices = [OPTIMIZERS.index(name) for name in names]
    other = next(index for index in reversed(range(len(OPTIMIZERS))) if index not in indices)
    return launcher.rule(
        "steps-with-optimizer",
        "optimizer",
        "mesh",
        f"the optimizer is {' or '.join(names)}",
        why,
        lambda v: np.isin(v["optimizer"], indices),
        lambda v: f"optimizer must be {' or '.join(names)}, got {OPTIMIZERS[int(v['optimizer'])]}",
        optimizer=other,
    )


RECIPE_RULES: tuple[Rule, ...] = (
    _computes_in_bf16(DEEPSPEED, "Its configuration has bf16 and fp16; fp8 layers are the model's own."),
    _computes_in_bf16(TRAINER, "TrainingArguments have bf16, fp16 and tf32."),
    _computes_in_bf16(NANOTRON, "model.dtype is bfloat16 or float32 in its releases."),
    *(
        _steps_with(launcher, "Its moments are fp32, fp16, bf16 or fp8 (--exp-avg-dtype).", "adamw", "precision-aware")
        for launcher in (MEGATRON, BRIDGE)
    ),
    *(
        _steps_with(launcher, "Optimizers go by name: block-wise moments of 8 bits have one.", "adamw", "adamw-8bit")
        for launcher in (TRAINER, AXOLOTL, ACCELERATE)
    ),
    *(
        _steps_with(launcher, "It builds AdamW with moments of the parameters' type.", "adamw")
        for launcher in (TORCHTITAN, DEEPSPEED, AUTOMODEL, NANOTRON, MAXTEXT)
    ),
)
