"""The command `plan` itself, which its verbs join, and the way out of each. It imports typer alone."""

from collections.abc import Callable
from typing import NoReturn

import typer

app = typer.Typer(
    name="plan",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def answer(verb: Callable[[], int], as_json: bool) -> NoReturn:
    """Leaves with the exit code of a verb, or with that of the failure it met, which is told."""
    from cli.failure import answered

    raise typer.Exit(answered(verb, as_json))
