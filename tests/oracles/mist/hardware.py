"""Seconds on Mist's L4: operators by table, collectives and copies by line, and what runs beside what."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
FOLDER = Path(__file__).parent
STREAMS = ("compute", "collective", "host_to_device", "device_to_host")
COLLECTIVE_FACTOR = {"all_gather": 1.0, "reduce_scatter": 1.1}
KEPT_MEMORY = 0.88
"""Share of a card's memory that the tuner plans with."""


@cache
def artifact() -> dict[str, Any]:
    """What `l4.json` holds."""
    document: dict[str, Any] = json.loads((FOLDER / "l4.json").read_text())
    return document


@dataclass(frozen=True)
class Card:
    """An L4 as the tuner's template describes it, with operators measured at "locked" or "free" clocks."""

    clocks: str

    @cached_property
    def _measured(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        with (FOLDER / "seconds.csv").open(newline="") as file:
            rows = csv.DictReader(line for line in file if not line.startswith("#"))
            return {
                (row["operator"], row["shapes"]): (float(row["forward_s"]), float(row["backward_s"]))
                for row in rows
                if row["clocks"] == self.clocks
            }

    @property
    def memory_mib(self) -> float:
        """Memory that a plan may use before its fragmentation margin."""
        return float(artifact()["template"]["memory_gib"]) * KEPT_MEMORY * 1024

    def operators_s(self, operators: Sequence[tuple[str, str]]) -> tuple[float, float]:
        """Forward and backward seconds of (operator, shapes) one after another, by Mist's reading of its table.

        A backward pass of more than 2.3 forward ones counts as two; an operator under 50 us forward or 100 us
        backward counts as nothing.
        """
        forward_s = backward_s = 0.0
        for operator in operators:
            forward, backward = self._measured[operator]
            backward = 2 * forward if backward > 2.3 * forward else backward
            if forward >= 5e-5 and backward >= 1e-4:
                forward_s, backward_s = forward_s + forward, backward_s + backward
        return forward_s, backward_s

    def accumulation_s(self, parameters: int) -> float:
        """Seconds that adding the gradients of a micro-batch takes."""
        return self._measured["accumulate", f"{parameters};{parameters}"][0]

    def collective_s(self, operation: str, mib: float, nodes: int, gpus: int) -> float:
        """Seconds of a collective over `gpus` devices of each of `nodes` nodes, `mib` in all."""
        group = nodes * gpus
        if group == 1:
            return 0.0
        links = artifact()["template"]["collectives"]
        link = next(link for link in links if (link["nodes"], link["gpus"]) == (nodes, gpus))
        line = mib / 1024 / link["gib_per_s"] * (group - 1) / group + link["latency_s"]
        return float(line * COLLECTIVE_FACTOR[operation])

    def copy_s(self, direction: str, mib: ArrayLike) -> Array:
        """Seconds of copies "to_device" or "to_host", of float[n] `mib`; nothing takes no time."""
        line = artifact()["template"][direction]
        amounts = np.asarray(mib, dtype=np.float64)
        return np.where(amounts > 0, amounts / 1024 / line["gib_per_s"] + line["latency_s"], 0.0)

    def beside_s(self, compute: ArrayLike, collective: ArrayLike, to_device: ArrayLike, to_host: ArrayLike) -> Array:
        """Seconds until all of four streams end that start together, each slowed by its factor in the set running."""
        streams = np.broadcast_arrays(compute, collective, to_device, to_host)
        left = np.array(streams, dtype=np.float64)
        elapsed = np.zeros(left.shape[1:])
        for names, factors in artifact()["template"]["slowdowns"].items():  # largest sets first
            running = np.array([stream in names.split("+") for stream in STREAMS])
            factor = np.array([factors[stream] for stream in STREAMS if stream in factors])[:, None]
            columns = np.flatnonzero(np.all((left > 1e-12) == running[:, None], axis=0))
            slowed = left[np.ix_(running, columns)] * factor
            first = slowed.min(axis=0)
            elapsed[columns] += first
            left[np.ix_(running, columns)] = (slowed - first) / factor
        elapsed += left.sum(axis=0)
        return elapsed
