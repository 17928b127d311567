"""Verbs that plan many jobs at once. It imports typer alone."""

from typing import Annotated, Any

import typer

from cli.app import answer, app
from cli.options import (
    OUTPUT,
    Assume,
    Cluster,
    Days,
    Gap,
    GlobalBatch,
    GlobalBatchTokens,
    Gpu,
    Gpus,
    GpusPerNode,
    Json,
    Mem,
    Model,
    Nodes,
    Optimizer,
    Precision,
    Price,
    Profile,
    Recipe,
    Report,
    Schedule,
    SearchMore,
    SeqLen,
    Set,
    Target,
    TimeLimit,
    Tokens,
    TopK,
    job_flags,
)

STUDY = "Study"


@app.command(name="what-if")
def what_if(
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of one input, every one with all others: gpus=64,128, seq-len=8k..128k:x2, gpu=h100,h200, "
            "workload.expert_imbalance=1,1.2. Any flag of planning, any field of --set.",
            metavar="KEY=VALUES",
            rich_help_panel=STUDY,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Scenarios at once; without it one a core.", metavar="N", min=1, rich_help_panel=STUDY),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(help="loky: processes here; dask, ray: their cluster.", metavar="NAME", rich_help_panel=STUDY),
    ] = "loky",
    yes: Annotated[bool, typer.Option("--yes", help="Plan more than 1,000 scenarios.", rich_help_panel=STUDY)] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Keep finished scenarios in this folder and go on from it; off: nowhere. Without it the user's cache.",
            metavar="DIR",
            rich_help_panel=STUDY,
        ),
    ] = None,
    tokens: Tokens = None,
    days: Days = None,
    price: Price = None,
    assume: Assume = None,
    model: Model = None,
    recipe: Recipe = None,
    precision: Precision = None,
    optimizer: Optimizer = None,
    gpus: Gpus = None,
    mem: Mem = None,
    gpu: Gpu = None,
    cluster: Cluster = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    profile: Profile = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    global_batch_tokens: GlobalBatchTokens = None,
    target: Target = "any",
    schedule: Schedule = None,
    search: SearchMore = None,
    gap: Gap = 0.005,
    time_limit: TimeLimit = None,
    top_k: TopK = 5,
    set_: Set = None,
    json: Json = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the study as JSON.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(help="Write a row for each scenario.", metavar="FILE.csv", rich_help_panel=OUTPUT),
    ] = None,
    parquet: Annotated[
        str | None,
        typer.Option(help="The same as Parquet (needs pyarrow).", metavar="FILE.parquet", rich_help_panel=OUTPUT),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(help="Write the plan of each scenario, 0.json and on.", metavar="DIR", rich_help_panel=OUTPUT),
    ] = None,
    report: Report = None,
) -> None:
    """Plan every combination of some inputs: a table, and what is best in time and cost.

    plan what-if --model llama3-70b --gpu h100 --sweep gpus=64,128,256 --sweep seq-len=8k..32k:x2 --price 2.5
    """
    flags = job_flags(locals())
    from cli.what_if import what_if

    money = {"tokens": tokens, "days": days, "price": price, "assume": assume or ()}
    files = {"output": output, "csv": csv, "parquet": parquet, "documents": documents, "report": report}
    way: dict[str, Any] = {"jobs": jobs, "backend": backend, "yes": yes, "keep": keep}
    answer(lambda: what_if(sweep or [], flags, money=money, files=files, as_json=json, **way), json)
