"""The command `plan`: its verbs and flags. It imports typer alone; a verb imports what it needs when it runs."""

import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from cli.options import (
    OUTPUT,
    QUESTIONS,
    SEARCH,
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
    OutputFolder,
    Precision,
    Recipe,
    SeqLen,
    Set,
    Target,
    WhyNot,
)

app = typer.Typer(
    name="plan",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Timeout = Annotated[float, typer.Option(help="Longest wait of a rank for the others.", min=1, metavar="SECONDS")]


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
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    global_batch_tokens: GlobalBatchTokens = None,
    target: Target = "any",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Search these pipeline schedules alone: zb-v, or 1f1b,v-half.", metavar="NAMES", rich_help_panel=SEARCH
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Search these, too: precision, optimizer, loss (of the recipe), offload, groups, meshes.",
            metavar="NAMES",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(help="Stop when no plan can be faster by this fraction.", rich_help_panel=SEARCH),
    ] = 0.005,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Stop after this long, best so far.", metavar="SECONDS", rich_help_panel=SEARCH),
    ] = None,
    top_k: Annotated[int, typer.Option(help="Plans to tell.", metavar="N", rich_help_panel=SEARCH)] = 5,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes of a large search; without it one a core, at most 4.",
            metavar="N",
            rich_help_panel=SEARCH,
            min=1,
            max=256,
        ),
    ] = None,
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
    json: Json = False,
    output: Output = None,
    stats: Annotated[
        str | None,
        typer.Option(help="Write wall times and machine facts.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Find the parallel configuration that trains a model fastest within memory, and how far any other could be better.

    plan --model llama3-70b --gpus 256 --mem 80GB
    """
    if context.invoked_subcommand is not None:
        _refuse_planning_flags(context, context.invoked_subcommand)
        return
    if version:
        from cli.version import print_version

        _answer(lambda: print_version(as_json=json), json)
    from cli.plan import plan

    flags = {
        "model": model,
        "gpus": gpus,
        "mem": mem,
        "gpu": gpu,
        "cluster": cluster,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "seq_len": seq_len,
        "global_batch": global_batch,
        "global_batch_tokens": global_batch_tokens,
        "recipe": recipe,
        "target": target,
        "schedule": schedule,
        "precision": precision,
        "optimizer": optimizer,
        "search": search,
        "gap": gap,
        "time_limit_s": time_limit,
        "top_k": top_k,
        "overrides": set_ or (),
    }
    questions = {
        **{"min_gpus": min_gpus, "max_seq_len": max_seq_len},
        **{"max_global_batch": max_global_batch, "largest_model": largest_model},
    }
    more: dict[str, Any] = {"stats": stats, "why_not": why_not, "advise": advise, "questions": questions, "jobs": jobs}
    _answer(lambda: plan(flags, as_json=json, output=output, **more), json)


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Print the report of a plan document."""
    from cli.show import show

    _answer(lambda: show(file, as_json=json), json)


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
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    global_batch_tokens: GlobalBatchTokens = None,
    target: Target = "any",
    set_: Set = None,
    json: Json = False,
    output: Output = None,
) -> None:
    """Tell what is wrong with a configuration: rules broken, memory that lacks, and the cheapest changes that fit."""
    from cli.check import check

    flags = {
        **{"model": model, "gpus": gpus, "mem": mem, "gpu": gpu, "cluster": cluster, "nodes": nodes},
        **{"gpus_per_node": gpus_per_node, "seq_len": seq_len, "global_batch": global_batch, "recipe": recipe},
        **{"precision": precision, "optimizer": optimizer},
        **{"global_batch_tokens": global_batch_tokens, "target": target, "overrides": set_ or ()},
    }
    _answer(lambda: check(configuration, flags, as_json=json, output=output), json)


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
    json: Json = False,
) -> None:
    """Replay a plan action by action: what each rank does when, what the step waits for, memory over time."""
    from cli.simulate import simulate

    files = {"svg_file": svg, "html_file": html, "trace_file": trace}
    _answer(lambda: simulate(file, as_json=json, perturb=perturb or (), compare=compare or (), **files), json)


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="FILE")],
    stage: Annotated[
        list[int] | None, typer.Option(help="Explain this stage alone; may be repeated.", metavar="K")
    ] = None,
    why_not: WhyNot = None,
    json: Json = False,
) -> None:
    """Print the formulas of a plan with its numbers put in, by stage and cause; or why it is not another plan."""
    from cli.explain import explain

    _answer(lambda: explain(file, stages=stage or [], why_not=why_not, as_json=json), json)


@app.command()
def export(
    file: Annotated[str, typer.Argument(help="A plan document, - for standard input.", metavar="PLAN")],
    to: Annotated[str, typer.Option("--to", help="The launcher: megatron, torchtitan, ...", metavar="NAME")],
    output: OutputFolder = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Export the closest plan that the launcher can express; tell its cost.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a plan in the form of a launcher: its configuration, variables and command. Exit 3 where it has no form."""
    from cli.export import export

    _answer(lambda: export(file, to=to, output=output, take_nearest=nearest, as_json=json), json)


@app.command()
def port(
    folder: Annotated[str, typer.Argument(help="A folder that `plan export` wrote.", metavar="DIR")],
    to: Annotated[str, typer.Option("--to", help="The other launcher.", metavar="NAME")],
    output: OutputFolder = None,
    json: Json = False,
) -> None:
    """Turn an export to one launcher, with the changes made to it since, into one to another."""
    from cli.export import port

    _answer(lambda: port(folder, to=to, output=output, as_json=json), json)


@app.command()
def models(json: Json = False) -> None:
    """List the models of the catalog."""
    from cli.models import models

    _answer(lambda: models(as_json=json), json)


@app.command()
def gpus(json: Json = False) -> None:
    """List the GPUs of the catalog."""
    from cli.gpus import gpus

    _answer(lambda: gpus(as_json=json), json)


@app.command()
def clusters(json: Json = False) -> None:
    """List the cluster presets of the catalog."""
    from cli.clusters import clusters

    _answer(lambda: clusters(as_json=json), json)


@app.command()
def recipes(json: Json = False) -> None:
    """List the framework recipes of the catalog."""
    from cli.recipes import recipes

    _answer(lambda: recipes(as_json=json), json)


@app.command()
def evaluate(
    runs: Annotated[str, typer.Argument(help="A CSV file with a row for each run.", metavar="RUNS.csv")],
    out: Annotated[str, typer.Option(help="Write the predictions, a row for each run.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Predict step time and memory of runs in a table; where they were measured, tell how far off."""
    from cli.evaluate import evaluate

    _answer(lambda: evaluate(runs, out=out, as_json=json), json)


@app.command()
def rules(
    name: Annotated[str | None, typer.Argument(help="A rule, to explain in full.", metavar="ID")] = None,
    launcher: Annotated[str | None, typer.Option(help="The rules of one launcher.", metavar="NAME")] = None,
    json: Json = False,
) -> None:
    """List what plans must obey, and what each launcher can express."""
    from cli.rules import rules

    _answer(lambda: rules(name, launcher=launcher, as_json=json), json)


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
    learning_rate: Annotated[float, typer.Option(help="Rate of AdamW, constant.", metavar="RATE")] = 3e-4,
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

    _answer(
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

    _answer(lambda: verify(file, timeout_s=timeout, as_json=json), json)


@app.command()
def schema(json: Json = False) -> None:
    """Print the JSON Schema of the plan document."""
    from cli.schema import schema

    _answer(schema, json)


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


def _answer(verb: Callable[[], int], as_json: bool) -> NoReturn:
    """Leaves with the exit code of a verb, or with that of the failure it met, which is told."""
    from cli.failure import answered

    raise typer.Exit(answered(verb, as_json))


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
