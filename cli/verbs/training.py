"""Verbs that train a plan."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.options import OUTPUT, Json, TimedBy

LONGEST_S = 1e8  # what clocks count without an overflow
HIGHEST_RATE = 1e3  # and no infinity
Timeout = Annotated[
    float, typer.Option(help="Longest wait of a rank for the others.", min=1, max=LONGEST_S, metavar="SECONDS")
]


@app.command(name="run")
def train(
    file: Annotated[str, typer.Argument(help="A plan document.", metavar="PLAN")],
    data: Annotated[
        str,
        typer.Option(help="A text (bytes are tokens), a token file (.npy, .bin), or synthetic.", metavar="FILE"),
    ] = "synthetic",
    steps: Annotated[int, typer.Option(help="Optimizer steps.", min=1, metavar="N")] = 10,
    local_ranks: Annotated[
        int | None, typer.Option(help="Start this many ranks here, without torchrun.", min=1, metavar="N")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Start from a Hugging Face folder of safetensors.", metavar="FOLDER")
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(help="Rate of AdamW, constant.", min=0, max=HIGHEST_RATE, metavar="RATE")
    ] = 3e-4,
    seed: Annotated[int, typer.Option(help="Of drawn weights and data.", min=0, metavar="N")] = 0,
    log: Annotated[
        str | None, typer.Option(help="Write a line of JSON a step.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            help="Write measured and predicted by stage, as evaluate reads it.",
            metavar="FILE.csv",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    timeout: Timeout = 600.0,
    json: Json = False,
) -> None:
    """Train a plan with PyTorch: under torchrun, or on ranks of this machine."""
    from cli.run import run

    answer(
        lambda: run(
            file,
            data=data,
            steps=steps,
            local_ranks=local_ranks,
            weights=weights,
            learning_rate=learning_rate,
            seed=seed,
            log=log,
            report=report,
            timeout_s=timeout,
            as_json=json,
        ),
        json,
    )


@app.command()
def verify(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="PLAN")],
    timeout: Timeout = 120.0,
    json: Json = False,
) -> None:
    """Run the shape of a plan on a few ranks of this machine, and compare losses and gradients with one process."""
    from cli.verify import verify

    answer(lambda: verify(file, timeout_s=timeout, as_json=json), json)


@app.command(name="dry-run")
def dry_run(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="PLAN")],
    rank: Annotated[int | None, typer.Option(help="The rank to be, 0 by default.", min=0, metavar="N")] = None,
    all_kinds: Annotated[bool, typer.Option("--all-kinds", help="Be a rank of each kind of stage in turn.")] = False,
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Build and run ranks of a plan here without its hardware: what they hold and send against the prediction."""
    from cli.dry_run import dry_run

    answer(lambda: dry_run(file, rank=rank, all_kinds=all_kinds, profile=profile, as_json=json), json)
