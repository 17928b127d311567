"""The critical path in words: what the step waits for, from its beginning to its end, in a few lines."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from cost_models.schedules.table import Action, Kind
from planner.timeline.step import KIND_NAMES, Step

__all__ = ["Leg", "legs", "shortened"]

MOST_LEGS = 13
"""Legs that are told one by one."""
KEPT = 3
"""Of a longer path, so many of the first, of the last and of the longest legs; at most MOST_LEGS with sums between."""


@dataclass(frozen=True)
class Leg:
    """A stretch of the critical path."""

    start_s: float
    end_s: float
    ranks: tuple[int, ...]
    """Ranks it passes, in order; empty for the global part."""
    text: str


@dataclass(frozen=True)
class _Visit:
    """Actions in a row on one rank, up to the hop that leaves it."""

    rank: int
    actions: tuple[int, ...]


def legs(step: Step) -> list[Leg]:
    """The critical path from 0 to the end of the step, without gaps: each leg begins where the one before ends."""
    found = [*_edge(step, first=True), *_stretches(step), *_edge(step, first=False)]
    if step.global_s > 0:
        text = "all ranks: the global part, optimizer step and what nothing hides"
        found.append(Leg(step.span_s, step.step_s, (), text))
    # A leg lasts until the next one begins: the hop that leaves it is a part of it.
    begins = [leg.start_s for leg in found[1:]]
    return [
        Leg(leg.start_s, end_s, leg.ranks, leg.text) for leg, end_s in zip(found, [*begins, step.step_s], strict=True)
    ]


def shortened(path: list[Leg]) -> list[Leg]:
    """The path itself, or of one with many legs the first, the last and the longest ones, the others summed up."""
    if len(path) <= MOST_LEGS:
        return path
    by_length = sorted(range(len(path)), key=lambda index: path[index].start_s - path[index].end_s)
    told = {*range(KEPT), *range(len(path) - KEPT, len(path)), *by_length[:KEPT]}
    short: list[Leg] = []
    for is_told, indices in groupby(range(len(path)), key=told.__contains__):
        run = [path[index] for index in indices]
        short += run if is_told or len(run) == 1 else [_summed(run)]
    return short


def _summed(run: list[Leg]) -> Leg:
    ranks = tuple(sorted({rank for leg in run for rank in leg.ranks}))
    return Leg(run[0].start_s, run[-1].end_s, ranks, f"{len(run)} more legs on {_ranks(ranks)}")


def _edge(step: Step, *, first: bool) -> Iterator[Leg]:
    """The work of a rank before its first forward, or after its last backward, where it takes time."""
    action = int(step.path[0 if first else -1])
    rank = int(step.rank[action])
    seconds = float((step.times.first_s if first else step.times.last_s)[rank])
    if seconds > 0:
        start_s = 0.0 if first else float(step.end_s[action])
        when = "before its first forward" if first else "after its last backward"
        yield Leg(start_s, start_s + seconds, (rank,), f"rank {rank}: exchanges {when}")


def _stretches(step: Step) -> Iterator[Leg]:
    """Legs of the actions: a micro-batch that passes from rank to rank is one, work on one rank another."""
    visits = _visits(step)
    at = 0
    while at < len(visits):
        stop = at + 1
        while stop < len(visits) and _passes(step, visits[at], visits[stop]):
            stop += 1
        leg = _passing(step, visits[at:stop]) if stop - at > 1 else _staying(step, visits[at])
        leaves = stop < len(visits) and visits[stop].rank != visits[stop - 1].rank
        yield replace(leg, text=f"{leg.text}, hop to rank {visits[stop].rank}") if leaves else leg
        at = stop


def _visits(step: Step) -> list[_Visit]:
    rank = step.rank[step.path]
    cuts = np.flatnonzero((rank[1:] != rank[:-1]) | step.path_waited[1:]) + 1
    parts = np.split(step.path, cuts)
    return [_Visit(int(step.rank[part[0]]), tuple(part.tolist())) for part in parts]


def _passes(step: Step, visit: _Visit, other: _Visit) -> bool:
    """Whether one micro-batch goes on from visit to visit with nothing else between."""
    if len(visit.actions) > 1 or len(other.actions) > 1:
        return False
    one, two = (step.table.action(each.actions[0]) for each in (visit, other))
    goes_on = (one.kind == Kind.FORWARD, *one[2:]) == (two.kind == Kind.FORWARD, *two[2:])
    return goes_on and Kind.WEIGHT_GRAD not in (one.kind, two.kind)


def _passing(step: Step, visits: list[_Visit]) -> Leg:
    first, last = visits[0].actions[0], visits[-1].actions[-1]
    begin, end = step.table.action(first), step.table.action(last)
    hops = sum(one.rank != other.rank for one, other in pairwise(visits))
    part = f", slice {begin.slice}" if step.table.slices > 1 else ""
    chunks = (f" chunk {begin.chunk}", f" chunk {end.chunk}") if step.table.chunks > 1 else ("", "")
    where = f"from rank {visits[0].rank}{chunks[0]} to rank {visits[-1].rank}{chunks[1]}, {hops} hop{'s' * (hops != 1)}"
    text = f"{_counted([begin])} of micro-batch {begin.micro_batch}{part} {where}"
    ranks = tuple(sorted({visit.rank for visit in visits}))
    return Leg(float(step.start_s[first]), float(step.end_s[last]), ranks, text)


def _staying(step: Step, visit: _Visit) -> Leg:
    actions = [step.table.action(index) for index in visit.actions]
    by_kind = [[action for action in actions if action.kind == kind] for kind in Kind]
    # Kinds that run on the same micro-batches are told together: "4 forwards and 4 backwards of micro-batches 0..3".
    told: dict[str, list[str]] = {}
    for of_kind in filter(None, by_kind):
        told.setdefault(_micro_batches(of_kind), []).append(_counted(of_kind))
    parts = [f"{' and '.join(counts)} of {micro_batches}" for micro_batches, counts in told.items()]
    chunks = sorted({action.chunk for action in actions})
    where = f" (chunk{'s' * (len(chunks) > 1)} {_span(chunks)})" if step.table.chunks > 1 else ""
    text = f"rank {visit.rank}: {', '.join(parts)}{where}"
    start_s, end_s = step.start_s[visit.actions[0]], step.end_s[visit.actions[-1]]
    return Leg(float(start_s), float(end_s), (visit.rank,), text)


def _counted(actions: list[Action]) -> str:
    name = KIND_NAMES[actions[0].kind].replace("_grad", " gradient")
    return f"{len(actions)} {name}s" if len(actions) > 1 else name


def _micro_batches(actions: list[Action]) -> str:
    numbers = sorted({action.micro_batch for action in actions})
    return f"micro-batch{'es' * (len(numbers) > 1)} {_span(numbers)}"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {_span(list(ranks))}"


def _span(numbers: list[int]) -> str:
    """Sorted numbers in short: `0..7`, or `0, 3, 5`; those with gaps that are many as `8 of 0..63`."""
    if len(numbers) == 1:
        return str(numbers[0])
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}..{numbers[-1]}"
    if len(numbers) <= 4:
        return ", ".join(map(str, numbers))
    return f"{len(numbers)} of {numbers[0]}..{numbers[-1]}"
