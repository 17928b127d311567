"""Which recipe a row's framework stands for.

A `recipe` column names an entry of the catalog or a file. Else the `framework` column decides by the first phrase of
FRAMEWORKS that it contains, and by what the notes say of the run: releases, compiled or eager, what was overlapped.
"""

import re
from functools import lru_cache

from cost_models.specs import catalog
from cost_models.specs.errors import SpecError
from cost_models.specs.recipe import FrameworkRecipe
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError
from planner.evaluate.sharding import Sharding, read_sharding
from planner.request import DEFAULT_RECIPE

__all__ = ["FRAMEWORKS", "recipe_of"]

# Phrase in the framework column, in lower case, and the recipe; the first that matches holds.
FRAMEWORKS: tuple[tuple[str, str], ...] = (
    ("megatron-bridge", "megatron-bridge"),
    ("nemo-megatron", "nemo-megatron"),
    ("nemo", "nemo"),
    ("mlperf", "nemo"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("gpt-neox", "megatron-deepspeed"),
    ("megatron-core", "megatron"),
    ("megatron-lm (sc21)", "megatron-2021"),
    ("megatron-lm (nov 2020)", "megatron-2021"),
    ("megatron-lm (jan 2021)", "megatron-2021"),
    ("megatron-lm (2019", "megatron-2021"),
    ("megatron-lm (2020", "megatron-2021"),
    ("megatron-lm (2021", "megatron-2021"),
    ("megatron-lm + zero bubble", "megatron-2022"),
    ("oneflow", "oneflow"),
    ("torchtitan", "torchtitan"),
    ("megatron", "megatron"),
    ("megascale", "nemo"),
    ("hai-llm", "megatron-bridge-graphs"),
    ("primus", "megatron"),
    ("flagscale", "megatron"),
    ("flagperf", "megatron"),
    ("paddle", "megatron"),
    ("mindspore", "megatron"),
    ("galvatron", "megatron"),
    ("alpa", "megatron-2022"),
    ("megablocks", "megatron"),
    ("tutel", "megatron-2022"),
    ("fastmoe", "megatron-2022"),
    ("llm-foundry", "llm-foundry"),
    ("composer", "llm-foundry"),
    ("mosaic", "llm-foundry"),
    ("torchtune", "torchtune"),
    ("nanotron", "nanotron"),
    ("internevo", "internevo"),
    ("internlm", "internevo"),
    ("maxtext", "maxtext"),
    ("paxml", "paxml"),
    ("jax", "maxtext"),
    ("levanter", "maxtext"),
    ("deepspeed", "deepspeed"),
    ("accelerate", "trainer"),
    ("trainer", "trainer"),
    ("hf", "trainer"),
    ("hugging", "trainer"),
    ("axolotl", "trainer"),
    ("llama-factory", "trainer"),
    ("trl", "trainer"),
    ("swift", "trainer"),
    ("litgpt", "trainer"),
    ("lit-gpt", "trainer"),
    ("olmo", "trainer"),
    ("metaseq", "trainer"),
    ("fairscale", "trainer"),
    ("fsdp", "trainer"),
    ("meta internal", "llama3"),
)
# Where no phrase is known: what most ran when their precision or GPU was usual. fp16 is of before 2022, years without
# flash attention; products of 8 and 4 bits, and Blackwell, run under NVIDIA's own recipes at first.
BY_PRECISION: tuple[tuple[str, str], ...] = (
    ("fp4", "nemo"),
    ("fp8", "nemo"),
    ("float8", "nemo"),
    ("fp16", "megatron-2021"),
)
BY_GPU: tuple[tuple[str, str], ...] = (("b200", "nemo"), ("b300", "nemo"), ("v100", "megatron-2021"))
# Else by how the states are sharded.
BY_SHARDING: dict[Sharding, str] = {"zero2": "deepspeed", "fsdp": "trainer", "grad_op": "trainer", "hsdp": "trainer"}
# What DTensor's loss on logits sharded by tensor parallelism holds at most in its backward, bytes per logit: the fp32
# log-probabilities, a dense gradient of the loss, the sum of it with the probabilities, and the product passed on.
SHARDED_LOSS_BYTES = 16
# No flash attention was written for these.
WITHOUT_FLASH = ("v100", "p100")
YEAR = re.compile(r"(20\d\d)")
RELEASE = re.compile(r"(\d\d)\.(\d\d)")


def recipe_of(cells: Cells) -> FrameworkRecipe:
    """The recipe of a row. Raises a RunError."""
    named = cells.text("recipe")
    if named:
        try:
            return _changed(cells, _loaded(named))
        except SpecError as error:
            raise InvalidRunError(str(error)) from error
    framework = cells.text("framework")
    name = next((recipe for phrase, recipe in FRAMEWORKS if phrase in framework.lower()), None)
    if name is None:
        name = cells.assume(
            "recipe", _usual(cells), f"framework {framework!r} has no recipe" if framework else "assumed"
        )
    return _changed(cells, _loaded(_of_time(cells, name, framework)))


def _usual(cells: Cells) -> str:
    """The recipe of a run that names no known framework."""
    sharded = BY_SHARDING.get(read_sharding(cells.text("zero_or_fsdp")) or "zero1")
    if sharded is not None:
        return sharded
    precision, gpu = cells.text("precision").lower(), cells.text("gpu").lower()
    told = [recipe for word, recipe in BY_PRECISION if word in precision]
    return next(iter(told + [recipe for word, recipe in BY_GPU if word in gpu]), DEFAULT_RECIPE)


@lru_cache(maxsize=1024)
def _loaded(name: str) -> FrameworkRecipe:
    return catalog.load_recipe(name)


def _of_time(cells: Cells, name: str, framework: str) -> str:
    """The recipe of the software's generation and kind."""
    if name == "megatron-bridge":
        release = RELEASE.search(framework)
        if release is not None:
            generation = int(release[1]), int(release[2])
            if generation < (26, 2):
                return "megatron-bridge-2025"
            if generation >= (26, 6):
                return "megatron-bridge-graphs"
    year = YEAR.search(framework)
    if name == "megatron" and year and int(year[1]) <= 2021:
        return "megatron-2021"
    if name == "megatron" and ("unfused" in cells.text("attention_impl").lower() or (year and int(year[1]) == 2022)):
        return "megatron-2022"
    if name == "megatron-deepspeed" and "bf16" in cells.text("precision").lower():
        return "megatron-deepspeed-bf16"
    if name == "torchtitan" and not cells.says("torch.compile", "compile"):
        return "torchtitan-eager"
    if name == "torchtitan" and year and int(year[1]) >= 2025:
        return "torchtitan-2025"
    if name == "trainer" and read_sharding(cells.text("zero_or_fsdp")) in ("zero1", "zero2"):
        return "deepspeed"
    if name == "llm-foundry" and "pure" in cells.text("precision").lower():
        return "llm-foundry-pure"
    return name


def _changed(cells: Cells, recipe: FrameworkRecipe) -> FrameworkRecipe:
    """The recipe with what the row itself says of fusion, overlap and graphs."""
    changes: dict[str, object] = {}
    attention = cells.text("attention_impl").lower()
    if "no flash" in attention or "unfused" in attention:
        changes["flash_attention"] = False
    elif attention:
        changes["flash_attention"] = True
    elif recipe.flash_attention and any(gpu in cells.text("gpu").lower() for gpu in WITHOUT_FLASH):
        changes["flash_attention"] = cells.assume("flash_attention", False, "none for this GPU")
    dispatcher = cells.note("dispatcher").lower()
    if dispatcher in ("hybridep", "deepep", "flex"):
        changes["expert_dispatcher"] = "deduplicated"
    elif dispatcher == "alltoall":
        changes["expert_dispatcher"] = "alltoall"
    graphs = cells.note("cuda_graph").lower()
    if graphs:
        whole = "full_iteration" in graphs or "moe" not in graphs
        changes["cuda_graphs" if whole else "cuda_graphs_without_experts"] = True
    if cells.says("overlap disabled", "overlap off"):
        changes |= {field: False for field in FrameworkRecipe.model_fields if field.startswith("overlap_")}
    if cells.says("full cuda graph", "full-iteration", "cuda graphs on"):
        changes["cuda_graphs"] = True
    if cells.says("tp-comm-overlap on", "tp_comm_overlap", "async tp", "asynctp"):
        changes["overlap_tensor_parallel"] = True
    if recipe.name.startswith("torchtitan") and (cells.whole("tp") or 1) > 1:
        changes["loss_bytes_per_logit"] = SHARDED_LOSS_BYTES
    if not recipe.fused_norm and cells.says("compile") and not cells.says("no compile", "without compile"):
        changes |= {"fused_norm": True, "fused_activation": True, "fused_rope": True}
    if cells.says("float8 all-gather", "fp8 all-gather"):
        changes["parameter_gather_bytes"] = 1
    if cells.says("chunked ce", "chunked loss"):
        changes["loss_bytes_per_logit"] = 0
    return recipe.replaced(**changes) if changes else recipe
