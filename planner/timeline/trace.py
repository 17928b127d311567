"""A replayed plan as a trace in the Trace Event Format, which Perfetto and chrome://tracing open.

One process a pipeline rank, with a track of what it computes, tracks of what is on its way to it, and a counter of the
memory it holds. Times are microseconds, as the format wants them; events are in the order they begin.

Format: "Trace Event Format", google/trace-viewer: phases X (complete), C (counter) and M (metadata).
"""

import json
from collections.abc import Iterator
from typing import Any

from planner.timeline.step import KIND_NAMES, Hops, Step, action_name
from planner.timeline.timeline import Timeline

__all__ = ["COMPUTE_TRACK", "trace_events", "trace_text"]

Event = dict[str, Any]

COMPUTE_TRACK, FIRST_HOP_TRACK = 0, 1


def trace_text(timeline: Timeline, name: str) -> str:
    """The trace as JSON text; `name` tells what was replayed."""
    document = {
        "traceEvents": trace_events(timeline),
        "displayTimeUnit": "ms",
        "otherData": {"plan": name, "step_time_s": timeline.step.step_s},
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"


def trace_events(timeline: Timeline) -> list[Event]:
    """The events: metadata first, then all others by the time they begin."""
    tracks = _hop_tracks(timeline.step, hops := timeline.step.hops())
    timed = [*_work(timeline.step), *_hops(timeline.step, hops, tracks), *_memory(timeline)]
    timed.sort(key=lambda event: event["ts"])
    return [*_names(timeline.step, tracks, hops), *timed]


def _complete(name: str, category: str, rank: int, track: int, start_s: float, end_s: float, **args: Any) -> Event:
    # Whole nanoseconds: what ends where the next begins must not overlap it by a rounding.
    start_us, end_us = _microseconds(start_s), _microseconds(end_s)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": rank,
        "tid": track,
        "ts": start_us,
        "dur": round(end_us - start_us, 3),
        "args": args,
    }


def _microseconds(time_s: float) -> float:
    return round(1e6 * time_s, 3)


def _work(step: Step) -> Iterator[Event]:
    """What each rank computes: its actions, what comes before and after them, the global part."""
    critical = set(step.path.tolist())
    for rank in range(step.ranks):
        for name, start_s, end_s in step.edges(rank):
            yield _complete(name, "step", rank, COMPUTE_TRACK, start_s, end_s)
        for index in step.actions_of(rank):
            action = step.table.action(index)
            args = {"micro_batch": action.micro_batch, "chunk": action.chunk, "slice": action.slice}
            yield _complete(
                action_name(step.table, index),
                KIND_NAMES[action.kind],
                rank,
                COMPUTE_TRACK,
                float(step.start_s[index]),
                float(step.end_s[index]),
                **args,
                critical=index in critical,
            )


def _hops(step: Step, hops: Hops, tracks: list[int]) -> Iterator[Event]:
    """What is on its way, on the rank that receives it."""
    columns = (hops.action.tolist(), hops.source.tolist(), hops.sent_s.tolist(), hops.arrived_s.tolist(), tracks)
    for action, source, sent_s, arrived_s, track in zip(*columns, strict=True):
        name = f"{action_name(step.table, source)} from rank {step.rank[source]}"
        yield _complete(name, "hop", int(step.rank[action]), track, sent_s, arrived_s)


def _hop_tracks(step: Step, hops: Hops) -> list[int]:
    """[messages] a track of the receiving rank on which nothing else is on its way at that time."""
    free_s: list[list[float]] = [[] for _ in range(step.ranks)]
    tracks = []
    for action, sent_s, arrived_s in zip(
        hops.action.tolist(), hops.sent_s.tolist(), hops.arrived_s.tolist(), strict=True
    ):
        lanes = free_s[int(step.rank[action])]
        lane = next((index for index, until_s in enumerate(lanes) if until_s <= sent_s), len(lanes))
        lanes[lane : lane + 1] = [arrived_s]
        tracks.append(FIRST_HOP_TRACK + lane)
    return tracks


def _memory(timeline: Timeline) -> Iterator[Event]:
    for rank, curve in enumerate(timeline.memory):
        for time_s, held in zip(curve.time_s.tolist(), curve.held_bytes.tolist(), strict=True):
            yield {
                "name": "memory",
                "ph": "C",
                "pid": rank,
                "tid": COMPUTE_TRACK,
                "ts": _microseconds(time_s),
                "args": {"bytes": round(held)},
            }


def _names(step: Step, tracks: list[int], hops: Hops) -> Iterator[Event]:
    used = sorted({(int(step.rank[action]), track) for action, track in zip(hops.action, tracks, strict=True)})
    for rank in range(step.ranks):
        yield _metadata("process_name", rank, COMPUTE_TRACK, name=f"rank {rank}")
        yield _metadata("process_sort_index", rank, COMPUTE_TRACK, sort_index=rank)
        yield _metadata("thread_name", rank, COMPUTE_TRACK, name="compute")
    for rank, track in used:
        number = f" {track}" if track > FIRST_HOP_TRACK else ""
        yield _metadata("thread_name", rank, track, name=f"hops{number}")


def _metadata(kind: str, rank: int, track: int, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": rank, "tid": track, "ts": 0, "args": args}
