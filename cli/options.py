"""Options that several verbs have, once each. It imports typer alone."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.completion import catalog_names, launchers, searched

MODEL, HARDWARE, BATCH, SEARCH, OUTPUT = "Model", "Hardware", "Step", "Search", "Output"
RUN = "Whole run: days, money, energy, failures"
QUESTIONS = "Questions, instead of a plan of all that is given"

Json = Annotated[bool, typer.Option("--json", help="Print JSON, also on failure.", rich_help_panel=OUTPUT)]

Model = Annotated[
    str | None,
    typer.Option(
        help="Model: a catalog name, a TOML file, a Hugging Face config.json or its folder.",
        autocompletion=catalog_names("models"),
        metavar="NAME",
        rich_help_panel=MODEL,
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Framework whose bytes and overlap hold.",
        autocompletion=catalog_names("frameworks"),
        metavar="NAME",
        rich_help_panel=MODEL,
    ),
]
Precision = Annotated[
    str | None, typer.Option(help="Data type of matrix products: bf16, fp8.", metavar="NAME", rich_help_panel=MODEL)
]
Optimizer = Annotated[
    str | None, typer.Option(help="adamw, adamw-8bit, precision-aware.", metavar="NAME", rich_help_panel=MODEL)
]
Gpus = Annotated[str | None, typer.Option(help="GPUs of the whole job.", metavar="N", rich_help_panel=HARDWARE)]
Mem = Annotated[
    str | None,
    typer.Option(
        help="Memory of one GPU: 80GB is a card's label, 80GiB is literal.", metavar="SIZE", rich_help_panel=HARDWARE
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        help="GPU: a catalog name or a TOML file.",
        autocompletion=catalog_names("gpus"),
        metavar="NAME",
        rich_help_panel=HARDWARE,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Cluster: a preset or a TOML file.",
        autocompletion=catalog_names("clusters"),
        metavar="NAME",
        rich_help_panel=HARDWARE,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        help="Measured profile of the devices: a file of `plan profile`.", metavar="FILE", rich_help_panel=HARDWARE
    ),
]
TimedBy = Annotated[
    str | None,
    typer.Option("--profile", help="Measured profile that times the plan, where no catalog has it.", metavar="FILE"),
]
Nodes = Annotated[
    str | None, typer.Option(help="Full nodes, instead of --gpus.", metavar="N", rich_help_panel=HARDWARE)
]
GpusPerNode = Annotated[str | None, typer.Option(help="GPUs that share a host.", metavar="N", rich_help_panel=HARDWARE)]
SeqLen = Annotated[
    str | None, typer.Option(help="Tokens of a sequence: 8192, 8k.", metavar="TOKENS", rich_help_panel=BATCH)
]
GlobalBatch = Annotated[str | None, typer.Option(help="Sequences of a step.", metavar="N", rich_help_panel=BATCH)]
GlobalBatchTokens = Annotated[
    str | None, typer.Option(help="Tokens of a step: 4M.", metavar="TOKENS", rich_help_panel=BATCH)
]
Target = Annotated[
    str,
    typer.Option(
        help="Search only what this launcher can express; any: some launcher, runtime: ours.",
        autocompletion=launchers,
        metavar="NAME",
        rich_help_panel=SEARCH,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a field of a spec: model.layers=4, recipe.flash_attention=false.",
        metavar="KEY=VALUE",
        rich_help_panel=MODEL,
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Write the plan document.", metavar="FILE", rich_help_panel=OUTPUT),
]
Report = Annotated[
    str | None,
    typer.Option(help="Write a page to look at, one HTML file.", metavar="FILE.html", rich_help_panel=OUTPUT),
]
OutputFolder = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="Write all files into a folder, or the main one.",
        metavar="DIR|FILE",
        rich_help_panel=OUTPUT,
    ),
]
WhyNot = Annotated[
    str | None,
    typer.Option(
        help="Tell why the plan does not have these values: tp=8,pp=2.", metavar="KEY=VALUE,...", rich_help_panel=OUTPUT
    ),
]

Schedule = Annotated[
    str | None,
    typer.Option(
        help="Search these pipeline schedules alone: zb-v, or 1f1b,v-half.", metavar="NAMES", rich_help_panel=SEARCH
    ),
]
SearchMore = Annotated[
    str | None,
    typer.Option(
        "--search",
        help="Search these, too: precision, optimizer, loss (of the recipe), offload, groups, meshes.",
        autocompletion=searched,
        metavar="NAMES",
        rich_help_panel=SEARCH,
    ),
]
Gap = Annotated[float, typer.Option(help="Stop when no plan can be faster by this fraction.", rich_help_panel=SEARCH)]
TimeLimit = Annotated[
    float | None,
    typer.Option(help="Stop after this long, best so far.", metavar="SECONDS", rich_help_panel=SEARCH),
]
TopK = Annotated[int, typer.Option(help="Plans to tell.", metavar="N", rich_help_panel=SEARCH)]
Tokens = Annotated[
    str | None,
    typer.Option(help="Tokens of the whole run: 15T, 300B.", metavar="TOKENS", rich_help_panel=RUN),
]
Days = Annotated[float | None, typer.Option(help="Days that the run may take.", metavar="N", rich_help_panel=RUN)]
Price = Annotated[
    str | None,
    typer.Option(
        help="Dollars for an hour of one GPU: 2.5, or h100-sxm=2.5,b200=4.0.", metavar="PRICE", rich_help_panel=RUN
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        help="Set what days, money, energy and goodput rest on: pue=1.2, failures_per_gpu_day=0.001, restart_s=300.",
        metavar="NAME=VALUE",
        rich_help_panel=RUN,
    ),
]

JOB = (
    *("model", "gpus", "mem", "gpu", "cluster", "nodes", "gpus_per_node", "profile"),
    *("seq_len", "global_batch", "global_batch_tokens", "recipe", "target", "schedule", "precision", "optimizer"),
    *("search", "gap", "top_k"),
)


def job_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb's arguments say of a job, by the keywords of `planner.request.build_request`."""
    flags = {name: given[name] for name in JOB if name in given}
    if "time_limit" in given:
        flags["time_limit_s"] = given["time_limit"]
    return flags | {"overrides": tuple(given["set_"] or ())}
