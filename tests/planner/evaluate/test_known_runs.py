"""Runs and allocations that are printed in public, with what they measured."""

import pytest

from cost_models.flops import model_flops
from cost_models.specs.catalog import load_model, load_recipe
from cost_models.specs.parameters import padded_vocab, parameters
from planner.evaluate.answers import answers

STATES = ("weight", "gradient", "master", "moment")
GIB, MIB = 2.0**30, 2.0**20

# The Llama 3 herd of models, table 4: micro-batch and chunks are not printed.
LLAMA3 = {
    "model": "LLAMA3.1-405B",
    "gpu": "H100-SXM-80GB",
    "gpus_per_node": "8",
    "seq_len": "8192",
    "global_batch_seqs": "2048",
    "tp": "8",
    "pp": "16",
    "cp": "1",
    "zero_or_fsdp": "2",
    "recompute": "none",
    "precision": "bf16",
    "framework": "Meta internal",
}
# Megatron-Bridge's memory tuning of a 70B fine-tuning: TP, PP, VPP, TFLOP/s a GPU and peak GB as printed.
FINE_TUNING = {
    "model": "llama3-70b",
    "gpu": "H100-SXM-80GB",
    "gpus_per_node": "8",
    "n_gpus": "32",
    "seq_len": "4096",
    "global_batch_seqs": "32",
    "micro_batch": "1",
    "zero_or_fsdp": "1",
    "recompute": "none",
    "precision": "fp8",
    "framework": "Megatron-Bridge 26.02",
}
TUNED = ((4, 4, 5, 704.0, 58.8), (4, 8, 5, 668.0, 53.2), (8, 4, 5, 508.7, 50.2))


def tflops(answer):
    """Model TFLOP/s of a GPU."""
    run = answer.run
    return model_flops(run.model, run.workload) / answer.costs.step_time_s / run.cluster.gpus / 1e12


def test_llama_3_at_scale():
    """430 TFLOP/s a GPU on 8,192 and 400 on 16,384, each within 8 %, in that order."""
    small, large = answers([{**LLAMA3, "n_gpus": "8192"}, {**LLAMA3, "n_gpus": "16384"}])
    assert tflops(small) == pytest.approx(430, rel=0.08)
    assert tflops(large) == pytest.approx(400, rel=0.08)
    assert tflops(small) > tflops(large)


def test_fine_tuning_of_70b():
    """Three layouts keep their order in speed and in memory, each within 12 %."""
    rows = [{**FINE_TUNING, "tp": str(tp), "pp": str(pp), "vpp": str(vpp)} for tp, pp, vpp, _, _ in TUNED]
    found = answers(rows)
    for answer, (_, _, _, speed, peak) in zip(found, TUNED, strict=True):
        assert tflops(answer) == pytest.approx(speed, rel=0.12)
        assert answer.costs.allocated_bytes / GIB == pytest.approx(peak, rel=0.12)
    assert tflops(found[0]) > tflops(found[1]) > tflops(found[2])
    peaks = [answer.costs.allocated_bytes for answer in found]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(("vocab", "tp", "padded"), [(151_669, 4, 152_064), (250_682, 8, 250_880), (50_257, 1, 50_304)])
def test_vocabularies_are_padded_as_megatron_pads_them(vocab, tp, padded):
    """The next multiple of 128 times the tensor-parallel degree, exactly."""
    assert padded_vocab(vocab, 128, tp) == padded


def test_a_logits_allocation_that_failed():
    """GPT-2 large, four sequences of 1,024 on one V100: one fp32 copy of the logits is 786 MiB; the run does not fit.

    The recipe's bytes a logit are this copy and the bf16 logits.
    """
    (answer,) = answers(
        [
            {
                "model": "GPT-2 large",
                "n_layers": "36",
                "hidden": "1280",
                "ffn": "5120",
                "heads": "20",
                "vocab": "50257",
                "gpu": "V100-32GB",
                "n_gpus": "1",
                "seq_len": "1024",
                "micro_batch": "4",
                "global_batch_seqs": "4",
                "tp": "1",
                "pp": "1",
                "recompute": "none",
                "precision": "fp16",
                "framework": "Megatron-LM (2020)",
            }
        ]
    )
    recipe, logits = answer.run.recipe, 4 * 1024 * 50_304
    assert logits * 4 / MIB == 786
    assert answer.costs.stages["transient_bytes"][0] == pytest.approx(recipe.loss_bytes_per_logit * logits)


def test_unsharded_states_of_published_models():
    """fp32 shards of Llama 2: 6,738,415,616 parameters over 8 ranks are 3.14 GiB of one state."""
    assert parameters(load_model("llama2-7b")) == 6_738_415_616
    assert round(4 * parameters(load_model("llama2-7b")) / 8 / GIB, 2) == 3.14


def test_logits_of_a_fine_tuning_that_failed():
    """Four sequences of 4,096 and 248,320 words over TP 2: one fp32 copy of a rank's logits is 7.58 GiB."""
    logits = 4 * 4096 * padded_vocab(248_320, 128, 2) / 2
    assert round(4 * logits / GIB, 2) == 7.58


@pytest.mark.parametrize(
    ("offloaded", "on_gpu_gib", "on_host_gib"),
    [((), 6.10, 1.47), (("gradient", "master", "moment"), 0.79, 63.74), (STATES, 0.12, 71.71)],
)
def test_shards_as_deepspeed_estimates_them(offloaded, on_gpu_gib, on_host_gib):
    """DeepSpeed's estimate for T5-3B, ZeRO-3 on eight GPUs of a node: its six numbers, of the bytes of our states.

    Every rank holds its share of the 18 bytes a parameter that are not offloaded, and the largest layer, its embedding,
    gathered with its gradients in 16 bits. For the host it reckons with half as much again as what is kept there; with
    nothing offloaded that is the largest layer of every rank.
    """
    recipe = load_recipe("megatron")
    bytes_of = {kind: getattr(recipe, f"{kind}_bytes") for kind in STATES}
    total, gathered = 2_851_598_336, (2 * recipe.parameter_gather_bytes) * 32_128 * 1024
    kept = sum(size for kind, size in bytes_of.items() if kind not in offloaded)
    moved = sum(bytes_of[kind] for kind in offloaded)
    assert round((kept * total / 8 + gathered) / GIB, 2) == on_gpu_gib
    assert round(1.5 * max(moved * total, 8 * gathered * (not offloaded)) / GIB, 2) == on_host_gib


def test_fp32_shards_that_could_not_be_allocated():
    """13.9e9 parameters as fp32 shards over 4 ranks are the 12.94 GiB (cut off, not rounded) that were asked for."""
    shards = load_recipe("trainer").weight_bytes * 13.9e9 / 4
    assert int(100 * shards / GIB) == 1294
