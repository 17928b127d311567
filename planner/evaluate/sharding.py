"""How a row shards its model states, whatever its framework calls it."""

import re
from typing import Literal

__all__ = ["Sharding", "read_sharding"]

Sharding = Literal["ddp", "zero1", "zero2", "fsdp", "grad_op", "hsdp"]
STAGE = re.compile(r"(?:^|zero|stage|level|sdp|os_?g?)[-_ ]*(?:stage|level)?[-_ ]*([0-3])\b")
# Words of the cell, in the order in which they decide. Paddle's group_sharded levels are os, os_g and p_g_os.
WORDS: tuple[tuple[tuple[str, ...], Sharding], ...] = (
    (("hsdp", "hybrid_shard", "hybrid shard", "mics", "hpz"), "hsdp"),
    (("shard_grad_op", "grad_op", "no reshard", "without reshard"), "grad_op"),
    (("fsdp", "full_shard", "fully_shard", "fully shard", "full shard", "gemini", "p_g_os"), "fsdp"),
    (("os_g",), "zero2"),
    (("distributed opt", "dist-opt", "distributed_opt", "dist_opt", "yes", "true", "os"), "zero1"),
    (("no_shard", "none", "ddp", "off", "false", "no"), "ddp"),
)
OF_STAGE: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "fsdp")


def read_sharding(text: str) -> Sharding | None:
    """The sharding that a cell names ("3", "ZeRO-2", "FSDP2", "stage1"); None where it names none that is known."""
    name = text.lower().strip()
    for words, sharding in WORDS[:3]:
        if any(word in name for word in words):
            return sharding
    stage = STAGE.search(name)
    if stage:
        return OF_STAGE[int(stage[1])]
    return next((sharding for words, sharding in WORDS[3:] if any(word in name for word in words)), None)
