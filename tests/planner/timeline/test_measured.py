import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import RequestError
from planner.timeline.measured import read_traces
from planner.timeline.trace import trace_text
from tests.planner.timeline.cases import plan_timeline, two_ranks, with_memory


def region(name: str, ts: Any = 0.0, dur: Any = 1.0, **more: Any) -> dict[str, Any]:
    """A complete event."""
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 0, **more}


def written(path: Path, events: Any, **more: Any) -> str:
    """A trace file of these events."""
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return str(path)


def test_a_trace_of_ours_gives_its_times_back(tmp_path: Path) -> None:
    """To the nanosecond, also when it is packed."""
    timeline = plan_timeline()
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    plain.write_text(trace_text(timeline, "test"))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        measured = read_traces([str(path)], timeline.step.table)
        assert np.all(measured.seen)
        assert measured.start_s == pytest.approx(timeline.step.start_s, abs=1e-9)
        assert measured.end_s == pytest.approx(timeline.step.end_s, abs=1e-9)
        assert measured.unknown == 0


def test_a_profiler_writes_a_file_a_rank(tmp_path: Path) -> None:
    """The rank is the file's where the events do not say; what ran on the device wins over what the host launched."""
    table = two_ranks().table
    files = [
        written(
            tmp_path / f"{rank}.json",
            [
                region("forward m0", 1000.0 * rank, 10.0, cat="user_annotation", pid=4711),
                region("forward m0", 1000.0 * rank + 5, 20.0, cat="gpu_user_annotation"),
                region("aten::mm"),
                {"ph": "i", "name": "forward m1", "ts": 0},
            ],
            distributedInfo={"rank": rank},
        )
        for rank in (0, 1)
    ]
    measured = read_traces(files, table)
    assert np.flatnonzero(measured.seen).tolist() == [0, 6]
    assert measured.start_s[[0, 6]] == pytest.approx([5e-6, 1005e-6])
    assert (measured.end_s - measured.start_s)[[0, 6]] == pytest.approx(20e-6)


def test_the_first_of_several_steps_counts_and_an_event_can_name_its_rank(tmp_path: Path) -> None:
    """A bare list of events is a trace too."""
    path = tmp_path / "list.json"
    events = [region("backward m2", ts, 1, args={"rank": 1}, pid=9) for ts in (70.0, 7.0, 700.0)]
    path.write_text(json.dumps([*events, region("forward m7")]))
    measured = read_traces([str(path)], two_ranks().table)
    assert np.nanmin(measured.start_s) == np.nanmax(measured.start_s) == pytest.approx(7e-6)
    assert measured.unknown == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not hold JSON"),
        (b"not json", "does not hold JSON"),
        (b"\xff\xfe\x00", "does not hold JSON"),
        (b"\x1f\x8bbroken", "does not hold JSON|cannot read"),
        (b"3", "is not a trace"),
        (b"{}", "is not a trace"),
        (b'{"traceEvents": {}}', "is not a trace"),
        (b'[{"name": "no phase"}]', "is not a trace"),
        (b"[1]", "is not a trace"),
        (b"[]", "no event is an action of this plan, such as rank 0, 'forward m0'"),
        (b'[{"ph": "X", "name": "forward m9", "ts": 0, "dur": 1, "pid": 0}]', "1 events are named like actions, none"),
        (b'[{"ph": "X", "name": "forward m0", "ts": "0", "dur": 1}]', "ts of event 'forward m0' must be a number"),
        (b'[{"ph": "X", "name": "forward m0", "ts": 0}]', "dur of event 'forward m0' must be a number"),
        (b'[{"ph": "X", "name": "forward m0", "ts": 0, "dur": -1}]', "must be >= 0, got -1"),
        (b'[{"ph": "X", "name": "forward m0", "ts": NaN, "dur": 1}]', "must be a number"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """One line that names the file."""
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=message) as refused:
        read_traces([str(path)], two_ranks().table)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message says why it cannot be read."""
    with pytest.raises(RequestError, match=r"cannot read .*: no such file"):
        read_traces([str(tmp_path / "none.json")], with_memory(two_ranks()).step.table)
