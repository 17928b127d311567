"""Launchers' own parsers accept what we export, and refuse nothing that we call legal."""

from functools import cache
from itertools import islice

import pytest

from cost_models.specs.errors import SpecError
from planner.document import Configuration
from planner.errors import PlannerError
from planner.export import exported
from planner.export.known import known
from tests.launchers.broken import LEGAL, broken, unchecked
from tests.launchers.environment import PACKAGES, Answer, requested, told
from tests.planner.export.configurations import configurations

pytestmark = pytest.mark.launchers

COUNT = 200
# The parser of a TransformerConfig reads what Megatron is told.
LAUNCHER = {parser: parser for parser in PACKAGES} | {"transformer_config": "megatron"}
PARSERS = pytest.mark.parametrize("parser", PACKAGES)

RANKS = {"degrees-multiply", "tp-inside-domain"}
SHARDS = {"degrees-multiply", "shards-and-replicas-make-dp"}
HEADS = {"tp-divides-heads", "tp-splits-kv-heads"}
# The legal rules that each parser, or its launcher's own check of the mesh, enforces: it refuses what breaks them.
CHECKED: dict[str, set[str]] = {
    "megatron": {
        *("batch-divides", "cp-splits-sequence", "ep-divides-experts", "interleaving-needs-pipeline"),
        *("stages-hold-all-layers", *RANKS, *HEADS),
    },
    "bridge": {"sequence-parallel-needs-tp", "stages-hold-all-layers"},
    "transformer_config": {"sequence-parallel-needs-tp", "stages-hold-all-layers", *HEADS},
    "torchtitan": {"cp-splits-sequence", *SHARDS},
    "deepspeed": {"batch-divides", "cp-switches-heads", "microbatches-make-batch", *RANKS},
    "accelerate": SHARDS,
    "trainer": {"tp-inside-domain", *SHARDS},
    "automodel": {"cp-splits-sequence", "experts-fill-stage", "tp-inside-domain", *SHARDS},
    "nanotron": {"degrees-multiply"},
    "axolotl": set(),
    "maxtext": {"batch-divides", "experts-fill-stage", "tp-inside-domain", *SHARDS},
}
# Arguments that there are where NVIDIA's quantization package is, which is not public.
OF_ANOTHER_PACKAGE = {"--kitchen-config-file", "--kitchen-recipe-number"}
# Its choices are an enumeration of the standard library, not of the wheel.
CHOOSES_A_SIGNAL = "--exit-signal"
# No export breaks these: no launcher cuts sequences into slices, and of documents interleaving may be flexible.
OF_NO_EXPORT = {"slices-divide-sequence", "interleaving-needs-whole-groups"}


@cache
def judged(parser: str) -> tuple[list[tuple[Configuration, Answer]], list[tuple[str, Configuration, Answer]]]:
    """What a parser says to random legal plans, and to plans that break a legal rule each; one process for all."""
    launcher = LAUNCHER[parser]
    requested(parser)
    legal = list(configurations(launcher, COUNT, seed=3))
    illegal = [(rule, plan) for rule, plans in broken(launcher).items() for plan in plans]
    bundles = [*((exported(plan, launcher), plan) for plan in legal)]
    bundles += [(unchecked(plan, launcher), plan) for _, plan in illegal]
    said = iter(told(parser, bundles))
    of_legal = list(zip(legal, islice(said, len(legal)), strict=True))
    return of_legal, [(rule, plan, answer) for (rule, plan), answer in zip(illegal, said, strict=True)]


@PARSERS
def test_two_hundred_random_legal_plans_are_accepted(parser: str) -> None:
    """None of the plans is refused; refusals are told with their plans."""
    said = judged(parser)[0]
    assert len(said) == COUNT
    refused = [
        f"{answer.error[:300]}\n  {plan.model.name} {plan.parallelism}" for plan, answer in said if not answer.accepted
    ]
    assert not refused, f"{len(refused)} of {COUNT}:\n" + "\n".join(refused[:5])


@PARSERS
def test_we_refuse_what_breaks_a_legal_rule_so_that_no_parser_has_to(parser: str) -> None:
    """Every plan that breaks one, by its name, whether or not the parser sees it; and which ones it sees."""
    said = judged(parser)[1]
    for rule, plan, _ in said:
        assert_refused(plan, LAUNCHER[parser], rule)
    assert {rule for rule, _, answer in said if not answer.accepted} == CHECKED[parser]


def test_every_legal_rule_that_an_export_can_break_is_broken_above() -> None:
    """Between them the launchers are told of plans that break each one."""
    assert {rule for parser in PACKAGES for rule, _, _ in judged(parser)[1]} == set(LEGAL) - OF_NO_EXPORT


def assert_refused(plan: Configuration, launcher: str, rule: str) -> None:
    """Fails where we would export a plan: as a document it is not valid, or its rule is named."""
    try:
        document = Configuration.model_validate(plan.model_dump())
    except (SpecError, ValueError):
        return
    with pytest.raises(PlannerError, match=rule):
        exported(document, launcher)


def test_the_distilled_table_of_arguments_is_that_of_the_parser() -> None:
    """Names, numbers of values and choices, read with ast, are those that argparse has."""
    [answer] = told("megatron_arguments", [])
    theirs, ours = answer.found, known()["arguments"]
    assert set(ours) - set(theirs) == OF_ANOTHER_PACKAGE
    assert {name: ours[name]["values"] for name in theirs} == {name: theirs[name]["values"] for name in theirs}
    named = set(theirs) - {CHOOSES_A_SIGNAL}
    assert {name: ours[name].get("choices") for name in named} == {name: theirs[name]["choices"] for name in named}
