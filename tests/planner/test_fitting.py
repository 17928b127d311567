"""What fits: a recompute set keeps and restores something between nothing and everything."""

import numpy as np
import pytest

from planner.fitting import FULL, device_capacity, recomputed_to_fit, with_recompute
from planner.layout_costs import LayoutCosts
from planner.options import stage_rows, with_zero_modes
from planner.predict import CostModel
from planner.request import build_request
from planner.space import Columns, layouts, meshes, take, units

MODELS = ("llama3-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b")


def some_rows(model: CostModel) -> tuple[LayoutCosts, Columns]:
    """Rows of drawn layouts at drawn positions with drawn numbers of layers, under every ZeRO mode."""
    drawn = np.random.default_rng(0)
    some = meshes(model.request)
    some = take(some, drawn.choice(len(some["pp"]), min(30, len(some["pp"])), replace=False))
    every = layouts(model.request, some)
    every = take(every, drawn.choice(len(every["pp"]), min(300, len(every["pp"])), replace=False))
    share = -(-units(model.request.model) // every["pp"])
    layers = np.maximum(every["vpp"], drawn.integers(1, 2 * share + 1))
    chosen = {"layout": np.arange(len(share)), "position": drawn.integers(0, every["pp"]), "layers": layers}
    return LayoutCosts.of(model, every), with_zero_modes(model, every, stage_rows(every, chosen, model.request.recipe))


@pytest.mark.parametrize("target", ["any", "runtime"])
@pytest.mark.parametrize("name", MODELS)
def test_no_set_takes_less_than_nothing_and_everything(name: str, target: str) -> None:
    """Bytes of every set are no less than the lesser of those; so what fits is found without asking where neither does.

    Schedules with a split backward, too: those of the runtime.
    """
    request = build_request(name, 128, "40GB", gpu="h100-sxm", seq_len="8k", global_batch=256, target=target)
    model = CostModel(request)
    costs, rows = some_rows(model)
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    needed = {
        index: model.stages(costs, with_recompute(rows, index, whole if index else 0 * whole), "device")["device_bytes"]
        for index in model.recompute_sets
    }
    least = np.minimum(needed[0], needed[FULL])
    pending = np.flatnonzero(needed[0] > device_capacity(model))
    found = recomputed_to_fit(model, costs, rows, pending)
    for index in set(model.recompute_sets) - {0, FULL}:
        assert np.all(needed[index] >= least * (1 - 1e-12))
        fits = pending[needed[index][pending] <= device_capacity(model)]
        assert found["origin"][found["recompute"] == index].tolist() == fits.tolist()
