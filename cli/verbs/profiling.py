"""Verbs of measured profiles, under `plan profile`: measuring one, what one says, how two differ, one of several nodes;
and the closed loop that checks one."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.options import HARDWARE, OUTPUT, GlobalBatch, Json, SeqLen

profile_app = typer.Typer(
    name="profile",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Measure this machine into a profile; show, compare and merge profiles.",
)
app.add_typer(profile_app)


Device = Annotated[
    str | None,
    typer.Option(
        help="cuda or cpu; without it the GPUs where there are some.", metavar="NAME", rich_help_panel=HARDWARE
    ),
]
Full = Annotated[bool, typer.Option("--full/--quick", help="Measure for ten minutes instead of one.")]
Ranks = Annotated[
    int | None,
    typer.Option(
        help="Ranks that measure together; without it one for each GPU or core.",
        min=1,
        max=64,
        metavar="N",
        rich_help_panel=HARDWARE,
    ),
]


@profile_app.callback()
def profile(
    context: typer.Context,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the profile; started again after an interruption, it goes on.",
            metavar="FILE",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    device: Device = None,
    full: Full = False,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Measure the shapes of this model; give it again for more.", metavar="NAME"),
    ] = None,
    ranks: Ranks = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    json: Json = False,
) -> None:
    """Measure this machine into a profile; show, compare and merge profiles."""
    if context.invoked_subcommand is not None:
        return
    from cli.measure import measure

    answer(
        lambda: measure(
            output,
            device=device,
            full=full,
            models=model or (),
            ranks=ranks,
            seq_len=seq_len,
            global_batch=global_batch,
            as_json=json,
        ),
        json,
    )


@app.command()
def loop(
    model: Annotated[
        list[str] | None, typer.Option(help="A model to train; give it again for more.", metavar="NAME")
    ] = None,
    ranks: Ranks = None,
    profile: Annotated[
        str | None, typer.Option(help="A measured profile; without it this machine is measured first.", metavar="FILE")
    ] = None,
    full: Full = False,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    best: Annotated[int, typer.Option(help="Best plans to run, of each model.", min=2, max=100, metavar="N")] = 10,
    random: Annotated[int, typer.Option(help="Random plans.", min=0, max=100, metavar="N")] = 10,
    bad: Annotated[int, typer.Option(help="Bad plans.", min=0, max=100, metavar="N")] = 4,
    rounds: Annotated[int, typer.Option(help="Turns of each plan.", min=1, max=100, metavar="N")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of a turn.", min=1, max=1000, metavar="N")] = 3,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write predicted and measured, a row for each plan.",
            metavar="FILE.csv",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure this machine, plan small models for it, run good, random and bad plans, and compare."""
    from cli.loop import loop

    answer(
        lambda: loop(
            model or (),
            ranks=ranks,
            profile=profile,
            full=full,
            seq_len=seq_len,
            global_batch=global_batch,
            counts={"best": best, "random": random, "bad": bad},
            rounds=rounds,
            steps=steps,
            output=output,
            as_json=json,
        ),
        json,
    )


@profile_app.command()
def show(
    file: Annotated[str, typer.Argument(help="A measured profile.", metavar="FILE")],
    svg: Annotated[
        str | None, typer.Option(help="Draw its tables, rates over sizes.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    json: Json = False,
) -> None:
    """Print what a measured profile says: where it is from, how it was measured, what operators reach."""
    from cli.profile import show

    answer(lambda: show(file, svg_file=svg, as_json=json), json)


@profile_app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A measured profile.", metavar="A")],
    second: Annotated[str, typer.Argument(help="Another one.", metavar="B")],
    most: Annotated[int, typer.Option(help="Sizes to tell of each operator.", min=1, max=1000, metavar="N")] = 3,
    json: Json = False,
) -> None:
    """Print how a second profile differs from a first: the largest differences by operator and size, constants."""
    from cli.profile import diff

    answer(lambda: diff(first, second, most=most, as_json=json), json)


@profile_app.command()
def merge(
    files: Annotated[list[str], typer.Argument(help="Profiles of one kind of device.", metavar="A B ...")],
    output: Annotated[str, typer.Option("--output", "-o", help="Write the merged profile.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Merge profiles of several nodes of one kind of device: medians, and how far the nodes lie apart."""
    from cli.profile import merge

    answer(lambda: merge(files, output=output, as_json=json), json)
