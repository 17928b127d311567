"""Verbs of measured profiles, under `plan profile`: what one says, how two differ, one of several nodes."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.options import OUTPUT, Json

profile_app = typer.Typer(
    name="profile",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Measure this machine into a profile; show, compare and merge profiles.",
)
app.add_typer(profile_app)


@profile_app.callback()
def profile(context: typer.Context) -> None:
    """Measure this machine into a profile; show, compare and merge profiles."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
