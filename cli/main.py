"""The command `plan`: planning is what it does without a verb. It imports typer alone, and all else when it runs."""

import sys
from typing import Annotated, Any, NoReturn

import typer

from cli.app import answer, app
from cli.options import (
    OUTPUT,
    QUESTIONS,
    SEARCH,
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
    Output,
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
    WhyNot,
    job_flags,
)
from cli.verbs import checking, documents, listing, profiling, studies, training

# Named, so that they are imported for what they do: verbs join the command when their module is read.
VERBS = (documents, checking, studies, listing, profiling, training)


@app.callback(
    epilog="Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 a launcher or the runtime cannot run the plan, "
    "4 a limit was reached, 130 interrupted."
)
def planning(
    context: typer.Context,
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
    jobs: Annotated[
        int,
        typer.Option(
            help="Processes of a large search; the plan does not depend on it.",
            metavar="N",
            rich_help_panel=SEARCH,
            min=1,
            max=256,
        ),
    ] = 1,
    set_: Set = None,
    why_not: WhyNot = None,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Price single changes and search every launcher's best plan, too: several times the time.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    min_gpus: Annotated[
        bool,
        typer.Option("--min-gpus", help="Find the fewest GPUs that fit, up to --gpus.", rich_help_panel=QUESTIONS),
    ] = False,
    max_seq_len: Annotated[
        bool,
        typer.Option("--max-seq-len", help="Find the longest sequence that fits.", rich_help_panel=QUESTIONS),
    ] = False,
    max_global_batch: Annotated[
        bool,
        typer.Option("--max-global-batch", help="Find the largest batch that fits.", rich_help_panel=QUESTIONS),
    ] = False,
    largest_model: Annotated[
        str | None,
        typer.Option(
            help="Find the largest model that fits, of those whose names begin so.",
            metavar="FAMILY",
            rich_help_panel=QUESTIONS,
        ),
    ] = None,
    one_more_node: Annotated[
        bool,
        typer.Option("--one-more-node", help="Tell what one more node buys.", rich_help_panel=QUESTIONS),
    ] = False,
    best_upgrade: Annotated[
        bool,
        typer.Option(
            "--best-upgrade",
            help="Tell which single upgrade helps most: memory, NVLink, network, GPUs.",
            rich_help_panel=QUESTIONS,
        ),
    ] = False,
    upgrade_by: Annotated[
        float,
        typer.Option(help="How many times as much an upgrade gives.", metavar="FACTOR", rich_help_panel=QUESTIONS),
    ] = 1.25,
    cheapest: Annotated[
        bool,
        typer.Option(
            "--cheapest",
            help="Find the cheapest cluster for --tokens in --days, of the GPUs in --price.",
            rich_help_panel=QUESTIONS,
        ),
    ] = False,
    tokens: Tokens = None,
    days: Days = None,
    price: Price = None,
    assume: Assume = None,
    json: Json = False,
    output: Output = None,
    report: Report = None,
    stats: Annotated[
        str | None,
        typer.Option(help="Write wall times and machine facts.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Find the parallel configuration that trains a model fastest within memory, and how far any other could be better.

    plan --model llama3-70b --gpus 256 --mem 80GB
    """
    flags = job_flags(locals())
    if context.invoked_subcommand is not None:
        _refuse_planning_flags(context, context.invoked_subcommand)
        return
    if version:
        from cli.version import print_version

        answer(lambda: print_version(as_json=json), json)
    from cli.plan import plan

    questions = {
        **{"min_gpus": min_gpus, "max_seq_len": max_seq_len},
        **{"max_global_batch": max_global_batch, "largest_model": largest_model},
        **{"one_more_node": one_more_node, "best_upgrade": best_upgrade, "cheapest": cheapest},
    }
    money = {"tokens": tokens, "days": days, "price": price, "assume": assume or ()}
    more: dict[str, Any] = {"stats": stats, "why_not": why_not, "advise": advise, "questions": questions, "jobs": jobs}
    more |= {"money": money, "upgrade_by": upgrade_by, "report": report}
    answer(lambda: plan(flags, as_json=json, output=output, **more), json)


def run(arguments: list[str]) -> int:
    """The exit code of a command line; whatever it had to say is printed."""
    try:
        return app(args=arguments, prog_name="plan", standalone_mode=False) or 0
    except typer.TyperException as error:
        from cli.failure import tell_usage

        return tell_usage(error, "--json" in arguments)


def main() -> NoReturn:
    """Runs the command line of this process and leaves it."""
    sys.exit(run(sys.argv[1:]))


def _refuse_planning_flags(context: typer.Context, verb: str) -> None:
    """A flag before a verb would be lost without a word; typer.BadParameter when there is one."""
    given = [name for name in context.params if _is_given(context, name)]
    if given:
        flags = ", ".join("--" + name.rstrip("_").replace("_", "-") for name in given)
        message = f"{flags} before '{verb}' has no effect: flags of a verb follow it"
        raise typer.BadParameter(message)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


if __name__ == "__main__":
    main()
