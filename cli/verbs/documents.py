"""Verbs of plan documents: what one says, why, what it does when, and its forms for launchers."""

from typing import Annotated

import typer

from cli.app import answer, app
from cli.completion import launchers
from cli.options import OUTPUT, Json, OutputFolder, Report, TimedBy, WhyNot


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="A plan document or a study, - for standard input.", metavar="FILE")],
    report: Report = None,
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Print the report of a plan document or a study; with --report as a page, whose timeline --profile times."""
    from cli.show import show

    answer(lambda: show(file, report=report, profile=profile, as_json=json), json)


@app.command()
def simulate(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="PLAN")],
    perturb: Annotated[
        list[str] | None,
        typer.Option(help="What a slow rank costs: stage=3:1.2. May be repeated.", metavar="stage=RANK:FACTOR"),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="A measured trace; where it deviates first. May be repeated, a file a rank.", metavar="FILE"),
    ] = None,
    svg: Annotated[
        str | None, typer.Option(help="Write the timeline as a drawing.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="Write timeline and tables as a page.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Write a trace for Perfetto and chrome://tracing.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Replay a plan action by action: what each rank does when, what the step waits for, memory over time."""
    from cli.simulate import simulate

    files = {"svg_file": svg, "html_file": html, "trace_file": trace, "profile": profile}
    answer(lambda: simulate(file, as_json=json, perturb=perturb or (), compare=compare or (), **files), json)


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="FILE")],
    stage: Annotated[
        list[int] | None, typer.Option(help="Explain this stage alone; may be repeated.", metavar="K")
    ] = None,
    why_not: WhyNot = None,
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Print the formulas of a plan with its numbers put in, by stage and cause; or why it is not another plan."""
    from cli.explain import explain

    answer(lambda: explain(file, stages=stage or [], why_not=why_not, profile=profile, as_json=json), json)


@app.command()
def export(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="PLAN")],
    to: Annotated[
        str,
        typer.Option("--to", help="The launcher: megatron, torchtitan, ...", metavar="NAME", autocompletion=launchers),
    ],
    output: OutputFolder = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Export the closest plan that the launcher can express; tell its cost.")
    ] = False,
    profile: TimedBy = None,
    json: Json = False,
) -> None:
    """Write a plan in the form of a launcher: its configuration, variables and command. Exit 3 where it has no form."""
    from cli.export import export

    answer(lambda: export(file, to=to, output=output, take_nearest=nearest, profile=profile, as_json=json), json)


@app.command()
def port(
    folder: Annotated[str, typer.Argument(help="A folder that `plan export` wrote.", metavar="DIR")],
    to: Annotated[str, typer.Option("--to", help="The other launcher.", metavar="NAME", autocompletion=launchers)],
    output: OutputFolder = None,
    json: Json = False,
) -> None:
    """Turn an export to one launcher, with the changes made to it since, into one to another."""
    from cli.export import port

    answer(lambda: port(folder, to=to, output=output, as_json=json), json)
