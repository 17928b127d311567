"""Verbs of measured profiles, under `plan profile`: what one says, how two differ, one of several nodes."""

import typer

from cli.app import app

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
