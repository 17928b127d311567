"""Pages to look at: of kept plans, of an answer that nothing fits, of a study; and a page taken apart."""

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from itertools import product

from planner.document import MEMORY_CAUSES, PlanDocument, read
from planner.economics import Economy, economics
from planner.errors import InfeasibleError
from planner.infeasible import Shortage
from planner.remedies import Remedy
from planner.report.html.infeasible import infeasible_page
from planner.report.html.plan import plan_page
from planner.report.html.study import study_page
from planner.request import build_request
from planner.study import ScenarioResult, Study, SweptInput
from planner.study.result import with_front
from planner.summary import PlanSummary
from tests.golden.jobs import FOLDER

PLANS = ("llama3-70b_256", "llama3-8b_7", "mixtral-8x7b_64", "deepseek-v3_256")
GIB = 2.0**30
GPUS, LENGTHS, RECIPES = ("8", "16", "32"), ("4096", "8192"), ("megatron", "torchtitan")
VOID = ("meta", "link", "br", "img", "input", "hr")


@cache
def document(name: str) -> PlanDocument:
    """A kept plan."""
    return read(FOLDER / f"{name}.json")


@cache
def page_of(name: str) -> str:
    """The page of a kept plan, made once."""
    return plan_page(document(name))


@cache
def infeasible() -> str:
    """A page where nothing fits, with a way out."""
    causes = dict.fromkeys(MEMORY_CAUSES, 0.0) | {"weights": 40 * GIB, "moments": 60 * GIB, "activations": 20 * GIB}
    remedy = Remedy(
        kind="nodes",
        text="16 GPUs <more>",
        flags={"--gpus": "16"},
        setting="",
        env="",
        needs_hardware=True,
        step_time_s=12.5,
        device_bytes=70 * GIB,
        capacity_bytes=79 * GIB,
        gpus=16,
        tokens=2**20,
    )
    shortage = Shortage(stage=0, needed_bytes=1.06 * 120 * GIB, capacity_bytes=79 * GIB, causes=causes)
    error = InfeasibleError("nothing fits: too much", "not searched: a; b; c; d", remedies=(remedy,), shortage=shortage)
    return infeasible_page(build_request("llama3-8b", 2, gpu="h100-sxm"), error)


@cache
def study() -> Study:
    """Twelve scenarios of a kept plan, its step halved by every doubling of the GPUs; one has no plan, one no sense."""
    plan, economy = PlanSummary.of(document("llama3-8b_8")), Economy.of(tokens="1T", days=60, price="2.5")
    found = []
    for number, inputs in enumerate(product(GPUS, LENGTHS, RECIPES)):
        named = dict(zip(("gpus", "seq-len", "recipe"), inputs, strict=True))
        if number in (3, 7):
            status, reason = ("infeasible", "states alone take <too> much") if number == 3 else ("invalid", "no sense")
            found.append(ScenarioResult(number=number, inputs=named, status=status, reasons=(reason,)))
            continue
        gpus, seq_len = int(inputs[0]), int(inputs[1])
        faster = gpus / 8 / (seq_len / 4096) ** 0.5 * (1.0 if inputs[2] == "megatron" else 0.9)
        scaled = plan.replaced(
            gpus=gpus,
            seq_len=seq_len,
            tokens_per_s=plan.tokens_per_s * faster,
            step_time_s=plan.step_time_s / faster,
            step_time_low_s=plan.step_time_low_s / faster,
            step_time_high_s=plan.step_time_high_s / faster,
        )
        money = economics(scaled, economy)
        found.append(ScenarioResult(number=number, inputs=named, status="planned", plan=scaled, economics=money))
    return Study(
        tool_version="0.1.0",
        common={"model": "llama3-8b"},
        swept=tuple(
            SweptInput(key=key, values=values)
            for key, values in (("gpus", GPUS), ("seq-len", LENGTHS), ("recipe", RECIPES))
        ),
        cost_unit="USD",
        assumptions=economy.sentences(),
        scenarios=with_front(tuple(found), "USD"),
    )


@cache
def page_of_study() -> str:
    """The page of the study, made once."""
    return study_page(study())


@dataclass
class Taken:
    """A page taken apart."""

    ids: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    """(element, attribute, value)"""
    numbers: list[tuple[str, str, str]] = field(default_factory=list)
    """(field, value, text) of the data elements"""
    scripts: list[tuple[str, str]] = field(default_factory=list)
    """(type, text)"""
    unclosed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What closes an element that is not open."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page, self.open = Taken(), [""]
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.page.ids.append(given["id"])
        self.page.attributes += [(tag, name, value) for name, value in given.items()]
        if tag == "data":
            self.page.numbers.append((given["data-field"], given["value"], ""))
        if tag == "script":
            self.page.scripts.append((given.get("type", ""), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1] == tag:
            self.open.pop()
        else:
            self.page.wrong.append(f"</{tag}> in <{self.open[-1]}>")

    def handle_data(self, data: str) -> None:
        if self.open[-1] == "data":
            name, value, text = self.page.numbers[-1]
            self.page.numbers[-1] = (name, value, text + data)
        if self.open[-1] == "script":
            kind, text = self.page.scripts[-1]
            self.page.scripts[-1] = (kind, text + data)


def taken_apart(page: str) -> Taken:
    """The parts of a page."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    parser.page.unclosed = parser.open[1:]
    return parser.page


def without_data(page: str) -> str:
    """A page without the documents that it holds: what they say is text, and loads nothing."""
    return re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
