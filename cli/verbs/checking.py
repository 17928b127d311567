"""Verbs that predict what somebody else decided: a configuration, a table of runs."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.options import (
    Cluster,
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
    Output,
    Precision,
    Profile,
    Recipe,
    SeqLen,
    Set,
    Target,
    TimedBy,
    job_flags,
)


@app.command()
def check(
    configuration: Annotated[
        str,
        typer.Argument(
            help="A plan document (- for standard input), or pairs: tp=4,pp=2,micro_batch_size=1,recompute=full.",
            metavar="PLAN|KEY=VALUE,...",
        ),
    ],
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
    set_: Set = None,
    json: Json = False,
    output: Output = None,
) -> None:
    """Tell what is wrong with a configuration: rules broken, memory that lacks, and the cheapest changes that fit."""
    flags = job_flags(locals())
    from cli.check import check

    answer(lambda: check(configuration, flags, as_json=json, output=output), json)


@app.command()
def evaluate(
    runs: Annotated[str, typer.Argument(help="A CSV file with a row for each run.", metavar="RUNS.csv")],
    out: Annotated[str, typer.Option(help="Write the predictions, a row for each run.", metavar="FILE")],
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Predict step time and memory of runs in a table; where they were measured, tell how far off."""
    from cli.evaluate import evaluate

    answer(lambda: evaluate(runs, out=out, profile=profile, as_json=json), json)
