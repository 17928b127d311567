"""Distil what the tests need of Mist's artifact: operator seconds, links, slowdowns and runs on the L4.

    python scripts/distil_mist.py ARTIFACT_FOLDER [-o tests/oracles/mist]

The folder holds op_latency_l4.csv, hardware_params.csv, mist_tuned_plans.csv and measured_results.csv. Written are
`seconds.csv`, the median seconds of the operators of a GPT layer, its embedding and its head, at locked and at free
clocks; and `l4.json`, the parameters of the tuner's template and the runs that were measured or analysed.
"""

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Any

SOURCE = "Mist (EuroSys '25), artifact github.com/Dazz993/Mist at d69e530"
LICENCE = "Apache-2.0"
CLOCKS = {"current": "locked", "backup": "free"}
OPERATORS = {
    "_operator.add": "add",
    "torch.add": "accumulate",
    "torch.baddbmm": "scores",
    "torch.bmm": "context",
    "torch._C._nn.gelu": "gelu",
    "mist.modules.embedding.VocabParallelEmbedding": "embedding",
    "mist.modules.flash_attn.flash_attn_qkvpacked_func": "flash_attention",
    "mist.modules.fused_dense.fused_dense_func": "linear",
    "mist.modules.fused_softmax.scaled_upper_triang_masked_softmax_fn": "softmax",
    "mist.modules.layer_norm.layer_norm": "norm",
    "mist.modules.losses._vocab_parallel_cross_entropy": "loss",
    "torch.nn.modules.dropout.Dropout": "dropout",
}
HIDDEN_SIZES = (2048, 2560, 4096)
STREAMS = {"C": "compute", "G": "collective", "I": "host_to_device", "O": "device_to_host"}
STRATEGY = (
    *("micro_batch", "dp", "tp", "shard_weights", "shard_gradients", "shard_optimizer"),
    *("weights", "gradients", "optimizer", "activations"),
)


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of one file of the artifact."""
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def operator_seconds(folder: Path) -> list[list[str]]:
    """Clocks, operator, shapes, median forward and backward seconds; operators split over devices are left out.

    The artifact keys an embedding by its tokens alone: of equal keys the n-th is of the n-th hidden size.
    """
    kept: dict[tuple[str, ...], list[str]] = {}
    for row in rows_of(folder, "op_latency_l4.csv"):
        name = OPERATORS.get(row["op"])
        if name and row["tp_world_size"] in ("", "1"):
            key = (CLOCKS[row["db"]], name, row["shapes"])
            if name == "embedding":
                hidden = next(size for size in HIDDEN_SIZES if (*key[:2], f"{key[2]};{size}") not in kept)
                key = (*key[:2], f"{key[2]};{hidden}")
            kept[key] = [f"{float(row[column]):.6g}" for column in ("fwd_median_s", "bwd_median_s")]
    return [[*key, *seconds] for key, seconds in kept.items()]


def template(folder: Path) -> dict[str, Any]:
    """Links, slowdowns and memory that the tuner was given for the L4."""
    values = {row["param"]: float(row["value"]) for row in rows_of(folder, "hardware_params.csv") if row["gpu"] == "l4"}
    collectives: list[dict[str, float]] = []
    slowdowns: dict[str, dict[str, float]] = {}
    for name in values:
        group = re.fullmatch(r"g2g_inter(\d)_intra(\d)_GBps", name)
        slowed = re.fullmatch(r"slowdown_([CGIO]+)_([CGIO])", name)
        if group:
            nodes, gpus = map(int, group.groups())
            latency = values[name.replace("GBps", "beta_s")]
            collectives.append({"nodes": nodes, "gpus": gpus, "gib_per_s": values[name], "latency_s": latency})
        elif slowed:
            streams = "+".join(STREAMS[letter] for letter in slowed[1])
            slowdowns.setdefault(streams, {})[STREAMS[slowed[2]]] = values[name]
    return {
        "memory_gib": values["memory_capacity_GB"],
        "to_device": {"gib_per_s": values["c2g_GBps"], "latency_s": values["c2g_beta_s"]},
        "to_host": {"gib_per_s": values["g2c_GBps"], "latency_s": values["g2c_beta_s"]},
        "collectives": collectives,
        "slowdowns": slowdowns,
    }


def numbers(text: str) -> list[float]:
    """The numbers of a cell, units dropped."""
    return [float(number) for number in re.findall(r"\d+\.?\d*", text)]


def runs(folder: Path) -> list[dict[str, Any]]:
    """The plans for the L4 that were run: what was decided, measured and, where known, predicted by Mist."""
    measured = {
        (row["family"], row["size"], row["flash"]): row
        for row in rows_of(folder, "measured_results.csv")
        if row["plan"] == "tuned"
    }
    found = []
    for plan in rows_of(folder, "mist_tuned_plans.csv"):
        size = plan["config"].split("-")[0]
        row = measured.get((plan["family"], size, plan["flash"])) if plan["hw"] == "l4-24gb" else None
        if row is None:
            continue
        stages = [
            dict(zip(STRATEGY, values, strict=True)) | {"layers": layers, "recomputed": recomputed}
            for values, layers, recomputed in zip(
                json.loads(plan["stage_strategies_b_dp_tp_w_g_o_WO_GO_OO_AO"]),
                json.loads(plan["layers"]),
                json.loads(plan["ckpt"]),
                strict=True,
            )
        ]
        predicted_s = numbers(row["predicted_iter_s"])
        found.append(
            {
                "family": plan["family"],
                "size": size,
                "seq_len": int(plan["seq"]),
                "global_batch": int(plan["gbs"]),
                "gpus": int(plan["nodes"]) * int(plan["gpus_per_node"]),
                "flash": plan["flash"] == "True",
                "micro_batches": int(plan["G"]),
                "stages": stages,
                "measured_s": float(row["iter_s"]),
                "measured_allocated_mib": numbers(row["peak_alloc_mb"]),
                "measured_reserved_mib": numbers(row["peak_reserved_mb"]),
                "predicted_s": predicted_s[0] if predicted_s else None,
                "predicted_mib": numbers(row["predicted_peak_mb"]),
            }
        )
    return found


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the four files of the artifact")
    parser.add_argument("-o", "--output", type=Path, default=Path("tests/oracles/mist"), help="where to write")
    arguments = parser.parse_args()
    with (arguments.output / "seconds.csv").open("w", newline="") as file:
        file.write(f"# {SOURCE}, mist/node_database; {LICENCE}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["clocks", "operator", "shapes", "forward_s", "backward_s"])
        writer.writerows(operator_seconds(arguments.folder))
    document = {
        "source": f"{SOURCE}, template-l4.yaml, tuned_configs/l4-24gb",
        "licence": LICENCE,
        "template": template(arguments.folder),
        "runs": runs(arguments.folder),
    }
    (arguments.output / "l4.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
