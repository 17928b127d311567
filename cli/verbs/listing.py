"""Verbs that list what the project knows."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.options import Json


@app.command()
def models(json: Json = False) -> None:
    """List the models of the catalog."""
    from cli.models import models

    answer(lambda: models(as_json=json), json)


@app.command()
def gpus(json: Json = False) -> None:
    """List the GPUs of the catalog."""
    from cli.gpus import gpus

    answer(lambda: gpus(as_json=json), json)


@app.command()
def clusters(json: Json = False) -> None:
    """List the cluster presets of the catalog."""
    from cli.clusters import clusters

    answer(lambda: clusters(as_json=json), json)


@app.command()
def recipes(json: Json = False) -> None:
    """List the framework recipes of the catalog."""
    from cli.recipes import recipes

    answer(lambda: recipes(as_json=json), json)


@app.command()
def rules(
    name: Annotated[str | None, typer.Argument(help="A rule, to explain in full.", metavar="ID")] = None,
    launcher: Annotated[str | None, typer.Option(help="The rules of one launcher.", metavar="NAME")] = None,
    json: Json = False,
) -> None:
    """List what plans must obey, and what each launcher can express."""
    from cli.rules import rules

    answer(lambda: rules(name, launcher=launcher, as_json=json), json)


@app.command()
def schema(json: Json = False) -> None:
    """Print the JSON Schema of the plan document."""
    from cli.schema import schema

    answer(schema, json)
