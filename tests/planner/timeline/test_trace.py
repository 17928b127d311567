import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from planner.timeline.timeline import Timeline
from planner.timeline.trace import COMPUTE_TRACK, trace_events, trace_text
from tests.planner.timeline.cases import plan_timeline, split_gradients, two_ranks, with_memory

TIMELINES = {
    "hand": lambda: with_memory(two_ranks(hop_s=0.3, edge_s=0.1, global_s=0.2)),
    "split": lambda: with_memory(split_gradients(hop_s=5.0)),
    "plan": plan_timeline,
}
EACH = pytest.mark.parametrize("name", TIMELINES)
# What the Trace Event Format asks of each phase that is used.
REQUIRED = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": float, "dur": float},
    "C": {"name": str, "pid": int, "ts": float, "args": dict},
    "M": {"name": str, "pid": int, "args": dict},
}
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int)}


def events_of(timeline: Timeline) -> list[dict[str, Any]]:
    """The events as a viewer reads them."""
    events: list[dict[str, Any]] = json.loads(trace_text(timeline, "test"))["traceEvents"]
    return events


@EACH
def test_every_event_has_what_its_phase_needs(name: str) -> None:
    """Names, processes, tracks and times are there and of the right type; metadata is of a kind viewers know."""
    for event in events_of(TIMELINES[name]()):
        for key, kind in REQUIRED[event["ph"]].items():
            assert isinstance(event[key], kind)
        if event["ph"] == "M":
            argument, kind = METADATA[event["name"]]
            assert isinstance(event["args"][argument], kind)
        elif event["ph"] == "C":
            assert all(isinstance(value, int) and value > 0 for value in event["args"].values())
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0


@EACH
def test_times_never_go_back_and_nothing_overlaps_on_a_track(name: str) -> None:
    """Viewers nest what overlaps on one track: an action is over before the next begins, to the nanosecond."""
    events = [event for event in events_of(TIMELINES[name]()) if event["ph"] != "M"]
    assert np.all(np.diff([event["ts"] for event in events]) >= 0)
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((round(1e3 * event["ts"]), round(1e3 * event["dur"])))
    for spans in tracks.values():
        assert all(start + long <= after for (start, long), (after, _) in zip(spans, spans[1:], strict=False))


@EACH
def test_every_action_is_there_once(name: str) -> None:
    """One complete event an action on the compute track of its rank, one an exchange, named tracks for all of them."""
    timeline = TIMELINES[name]()
    step, events = timeline.step, trace_events(timeline)
    work = [event for event in events if event["ph"] == "X" and event["tid"] == COMPUTE_TRACK]
    assert sum(event["cat"] != "step" for event in work) == step.table.actions
    assert sum(event["cat"] == "step" for event in work) == sum(len(step.edges(rank)) for rank in range(step.ranks))
    assert sum(event["ph"] == "X" and event["cat"] == "hop" for event in events) == len(step.hops().action)
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"} >= used
    critical = [event["dur"] for event in work if event["args"].get("critical")]
    assert sum(critical) == pytest.approx(1e6 * step.duration_s[step.path].sum(), rel=1e-6)


def test_messages_that_travel_at_once_have_tracks_of_their_own() -> None:
    """Two forwards on the way to rank 1, which takes longer than a forward, are on two tracks."""
    hops = [event for event in events_of(with_memory(split_gradients(hop_s=5.0))) if event.get("cat") == "hop"]
    assert {event["tid"] for event in hops if event["pid"] == 1} == {1, 2}
    assert hops[0]["name"] == "forward m0 from rank 0"
    assert (hops[0]["ts"], hops[0]["dur"]) == (1e6, 5e6)


def test_the_counter_is_the_memory_curve() -> None:
    """A value a step of the curve, in bytes."""
    timeline = plan_timeline()
    counted = [event["args"]["bytes"] for event in events_of(timeline) if event["ph"] == "C" and event["pid"] == 2]
    assert counted == [round(held) for held in timeline.memory[2].held_bytes.tolist()]
