"""What users and their scripts rely on: verbs, flags, start-up and exit codes of the installed command."""

import json
import os
import subprocess
import sys

import pytest
import typer.main

from cli.main import app

FLAGS = {
    "": "--advise --assume --best-upgrade --cheapest --cluster --days --gap --global-batch --global-batch-tokens --gpu "
    "--gpus --gpus-per-node --install-completion --jobs --json --largest-model --max-global-batch --max-seq-len --mem "
    "--min-gpus --model --nodes --one-more-node --optimizer --output --precision --price --profile --recipe --report "
    "--schedule --search --seq-len --set --show-completion --stats --target --time-limit --tokens --top-k --upgrade-by "
    "--version --why-not -o",
    "check": "--cluster --global-batch --global-batch-tokens --gpu --gpus --gpus-per-node --json --mem --model --nodes "
    "--optimizer --output --precision --profile --recipe --seq-len --set --target -o",
    "clusters": "--json",
    "dry-run": "--all-kinds --json --profile --rank",
    "evaluate": "--json --out --profile",
    "explain": "--json --profile --stage --why-not",
    "export": "--json --nearest --output --profile --to -o",
    "gpus": "--json",
    "loop": "--bad --best --full --global-batch --json --model --output --profile --quick --random --ranks --rounds "
    "--seq-len --steps -o",
    "models": "--json",
    "port": "--json --output --to -o",
    "profile": "--device --full --global-batch --json --model --output --quick --ranks --seq-len -o",
    "profile diff": "--json --most",
    "profile merge": "--json --output -o",
    "profile show": "--json --svg",
    "recipes": "--json",
    "rules": "--json --launcher",
    "run": "--data --json --learning-rate --local-ranks --log --report --seed --steps --timeout --weights",
    "schema": "--json",
    "show": "--json --profile --report",
    "simulate": "--compare --html --json --perturb --profile --svg --trace",
    "verify": "--json --timeout",
    "what-if": "--assume --backend --cluster --csv --days --documents --gap --global-batch --global-batch-tokens --gpu "
    "--gpus --gpus-per-node --jobs --json --keep --mem --model --nodes --optimizer --output --parquet --precision "
    "--price --profile --recipe --report --schedule --search --seq-len --set --sweep --target --time-limit --tokens "
    "--top-k --yes -o",
}
COMMAND = [sys.executable, "-m", "cli.main"]
HEAVY = ("torch", "sympy", "pandas", "pulp", "highspy", "numpy", "networkx", "pydantic")


def test_verbs_and_flags_are_frozen() -> None:
    """A verb or flag that comes, goes or changes its name is a change of the contract: edit FLAGS with it."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    verbs = {name: command.get_command(context, name) for name in command.list_commands(context)}
    for group in [name for name, verb in verbs.items() if hasattr(verb, "list_commands")]:
        names = verbs[group].list_commands(context)
        verbs |= {f"{group} {name}": verbs[group].get_command(context, name) for name in names}
    names = {
        name: [flag for parameter in verb.params for flag in (*parameter.opts, *parameter.secondary_opts)]
        for name, verb in {"": command, **verbs}.items()
    }
    flags = {name: " ".join(sorted(flag for flag in some if flag.startswith("-"))) for name, some in names.items()}
    assert flags == FLAGS


def test_help_loads_nothing_heavy() -> None:
    """`plan --help` answers from typer alone; tests/benchmarks/startup.py tells how soon."""
    code = (
        "import sys\n"
        "from cli.main import run\n"
        "assert run(['--help']) == 0\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert "--model" in done.stdout


@pytest.mark.parametrize("verb", ["models", "gpus", "clusters", "schema", "--version"])
def test_verbs_print_json(verb: str) -> None:
    """With --json every verb prints JSON on stdout and nothing on stderr."""
    done = subprocess.run([*COMMAND, verb, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr == ""


def test_a_reader_that_leaves_is_no_failure() -> None:
    """`plan schema | head -1` ends quietly although most of the output finds no reader."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*COMMAND, "schema"], stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_utf8_gets_text() -> None:
    """The table of models prints in an ASCII terminal."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([*COMMAND, "models"], capture_output=True, env=environment, check=True)
    assert b"llama3-70b" in done.stdout
    assert done.stdout.isascii()


def test_results_in_a_pipe_have_no_colour_and_no_trailing_blanks() -> None:
    """What goes to a file is clean text."""
    done = subprocess.run([*COMMAND, "clusters"], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
