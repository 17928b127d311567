"""Words for the sharding of states."""

import pytest

from planner.evaluate.sharding import read_sharding


@pytest.mark.parametrize(
    ("text", "sharding"),
    [
        ("0", "ddp"),
        ("none", "ddp"),
        ("no_shard", "ddp"),
        ("1", "zero1"),
        ("ZeRO-1", "zero1"),
        ("distributed optimizer", "zero1"),
        ("stage1", "zero1"),
        ("os", "zero1"),
        ("zero2", "zero2"),
        ("ZeRO stage 2", "zero2"),
        ("os_g", "zero2"),
        ("3", "fsdp"),
        ("FSDP2", "fsdp"),
        ("zero-3", "fsdp"),
        ("FULL_SHARD", "fsdp"),
        ("p_g_os", "fsdp"),
        ("SHARD_GRAD_OP", "grad_op"),
        ("hsdp", "hsdp"),
        ("HYBRID_SHARD", "hsdp"),
        ("9", None),
        ("mystery", None),
    ],
)
def test_every_frameworks_words(text, sharding):
    """PyTorch's, DeepSpeed's, Megatron's and Paddle's names stand for the same few shardings."""
    assert read_sharding(text) == sharding
