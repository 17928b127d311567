"""A measured trace: when the actions of a plan ran, read from files in the Trace Event Format.

It takes what `trace.py` writes and what the PyTorch profiler writes when the training loop names its regions as
`action_name` does (`record_function("forward m3 c1")`), one file for all ranks or one a rank, gzip or plain.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.schedules.table import ActionTable, BoolArray
from cost_models.schedules.times import FloatArray
from planner.errors import RequestError
from planner.timeline.step import action_name

__all__ = ["Measured", "read_traces"]

NAME = re.compile(r"(forward|backward|input_grad|weight_grad) m\d+( c\d+)?( s\d+)?")
SECONDS = 1e-6
# The profiler tells a region twice: when the host launched it, and when the device ran it.
DEVICE = "gpu_user_annotation"


@dataclass(frozen=True, eq=False)
class Measured:
    """The actions of a table as they ran; where one was not recorded, its times are NaN."""

    start_s: FloatArray
    """[actions] on the clock of its rank."""
    end_s: FloatArray
    """[actions]"""
    unknown: int
    """Events that are named like actions but are not in the table."""

    @property
    def seen(self) -> BoolArray:
        """[actions] whether it was recorded."""
        return np.isfinite(self.start_s)


@dataclass(frozen=True)
class _Event:
    rank: int
    name: str
    start_s: float
    end_s: float
    on_device: bool


def read_traces(paths: Sequence[str], table: ActionTable) -> Measured:
    """The actions of a table in some trace files. Of several steps in a trace the first one counts.

    A rank is what an event says in `args.rank`, else what its file says in `distributedInfo.rank`, else its pid.
    Raises RequestError when a file cannot be read, is no trace, or when no event is an action of the table.
    """
    index = {(int(rank), action_name(table, action)): action for action, rank in enumerate(table.rank_of().tolist())}
    start_s, end_s = np.full(table.actions, np.nan), np.full(table.actions, np.nan)
    events = [event for path in paths for event in _events(path)]
    known = [event for event in events if (event.rank, event.name) in index]
    if not known:
        example = f"rank 0, {action_name(table, 0)!r}"
        named = f"{len(events)} events are named like actions, none of them" if events else "no event"
        message = f"{', '.join(paths)}: {named} is an action of this plan, such as {example}"
        raise RequestError(message)
    # Last written stays: the device's events win over the host's, and earlier ones over later ones.
    for event in sorted(known, key=lambda event: (event.on_device, -event.start_s)):
        action = index[event.rank, event.name]
        start_s[action], end_s[action] = event.start_s, event.end_s
    return Measured(start_s, end_s, len(events) - len(known))


def _events(path: str) -> Iterator[_Event]:
    """The complete events of a file that are named like actions."""
    document = _json(path)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not all(isinstance(event, dict) and "ph" in event for event in events):
        message = f"{path} is not a trace: it must be a list of events with a phase 'ph', or hold one as 'traceEvents'"
        raise RequestError(message)
    info = document.get("distributedInfo") if isinstance(document, dict) else None
    file_rank = info.get("rank") if isinstance(info, dict) else None
    for event in events:
        if event["ph"] == "X" and NAME.fullmatch(str(event.get("name", ""))):
            yield _event(path, event, file_rank)


def _event(path: str, event: dict[str, Any], file_rank: object) -> _Event:
    args = event.get("args")
    own_rank = args.get("rank") if isinstance(args, dict) else None
    rank = next((value for value in (own_rank, file_rank, event.get("pid")) if isinstance(value, int)), -1)
    start_s, long_s = (_seconds(path, event, key) for key in ("ts", "dur"))
    if long_s < 0:
        message = f"{path}: dur of event {event['name']!r} must be >= 0, got {event['dur']!r}"
        raise RequestError(message)
    return _Event(rank, event["name"], start_s, start_s + long_s, event.get("cat") == DEVICE)


def _seconds(path: str, event: dict[str, Any], key: str) -> float:
    value = event.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        message = f"{path}: {key} of event {event['name']!r} must be a number of microseconds, got {value!r}"
        raise RequestError(message)
    return SECONDS * value


def _json(path: str) -> Any:
    try:
        content = Path(path).read_bytes()
        return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        raise RequestError(message) from error
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        message = f"{path} is not a trace: it does not hold JSON ({type(error).__name__})"
        raise RequestError(message) from error
