"""The catalog: every file validates and names its sources; names, aliases, capacity and digests."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs import catalog
from cost_models.specs.base import Spec
from cost_models.specs.catalog import (
    capacity_bytes,
    data_folder,
    default_cluster,
    digest,
    load_cluster,
    load_gpu,
    load_model,
    load_profile,
    load_recipe,
    names,
    nominal_gpu,
)
from cost_models.specs.errors import SpecError, UnitError, UnknownNameError

ROOT = Path(__file__).resolve().parents[3]
KINDS: tuple[catalog.Kind, ...] = ("models", "gpus", "clusters", "profiles", "frameworks")
# layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, parameters in 1e9 (matrices and embeddings only)
SHAPES = {
    "llama2-7b": (32, 4096, 11008, 32, 32, 128, 32000, 4096, 6.738),
    "llama2-13b": (40, 5120, 13824, 40, 40, 128, 32000, 4096, 13.015),
    "llama2-70b": (80, 8192, 28672, 64, 8, 128, 32000, 4096, 68.975),
    "llama3-8b": (32, 4096, 14336, 32, 8, 128, 128256, 8192, 8.030),
    "llama3-70b": (80, 8192, 28672, 64, 8, 128, 128256, 8192, 70.552),
    "llama3.1-8b": (32, 4096, 14336, 32, 8, 128, 128256, 131072, 8.030),
    "llama3.1-70b": (80, 8192, 28672, 64, 8, 128, 128256, 131072, 70.552),
    "llama3.1-405b": (126, 16384, 53248, 128, 8, 128, 128256, 131072, 405.849),
    "llama3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, 131072, 1.236),
    "gpt3-175b": (96, 12288, 49152, 96, 96, 128, 50257, 2048, 174.563),
    "qwen2.5-72b": (80, 8192, 29568, 64, 8, 128, 152064, 131072, 72.704),
}


def entry(kind: catalog.Kind, name: str) -> dict[str, Any]:
    """Return a data file as it is written."""
    return tomllib.loads((data_folder() / kind / f"{name}.toml").read_text(encoding="utf-8"))


def load(kind: catalog.Kind, name: str) -> Spec:
    """Return any entry, clusters with 16 GPUs."""
    loaders = {"models": load_model, "gpus": load_gpu, "profiles": load_profile, "frameworks": load_recipe}
    return load_cluster(name, 16) if kind == "clusters" else loaders[kind](name)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in names(kind)])
def test_every_data_file_validates_and_is_named_like_its_file(kind: catalog.Kind, name: str) -> None:
    """The catalog has no file that cannot be loaded, and none under another name."""
    assert getattr(load(kind, name), "name") == name  # noqa: B009


def test_the_catalog_holds_what_is_promised() -> None:
    """The entries that documentation and defaults rely on are there."""
    assert set(SHAPES) < set(names("models"))
    assert len(names("models")) == 61
    assert names("gpus") == names("profiles") == sorted(FIGURES)
    presets = {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "aws-p4d", "aws-p5", "aws-p6-b200"}
    presets |= {
        "a100-80-pcie-node",
        "h100-pcie-node",
        "h100-nvl-node",
        "hgx-h100-96",
        "hgx-a800",
        "aws-p4de",
        "aws-p5e",
    }
    assert presets | {"a100-4gpu", "l4-pcie", "llama3-roce", "hgx-h800", "mi300x-node"} <= set(names("clusters"))
    assert "megatron" in names("frameworks")


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_models_have_their_published_shape_and_size(name: str) -> None:
    """Typed-in shapes match, and so does the number of parameters of the matrices."""
    model = load_model(name)
    shape = (model.layers, model.hidden, model.ffn, model.heads, model.kv_heads, model.head_dim, model.vocab)
    assert (*shape, model.max_seq_len) == SHAPES[name][:-1]
    attention = model.hidden * model.head_dim * (2 * model.heads + 2 * model.kv_heads)
    mlp = (3 if model.gated_mlp else 2) * model.hidden * model.ffn
    embeddings = (1 if model.tie_embeddings else 2) * model.vocab * model.hidden
    total = model.layers * (attention + mlp) + embeddings
    assert total / 1e9 == pytest.approx(SHAPES[name][-1], abs=0.001)
    assert model.source


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("gpus", "profiles", "frameworks") for n in names(k)])
def test_every_figure_names_its_source(kind: catalog.Kind, name: str) -> None:
    """Each field that holds a figure or a switch has a source, and no source is left over."""
    content = entry(kind, name)
    sources = content.get("sources", {})
    assert set(sources) == set(content) - {"name", "gpu", "scaled_from", "sources", "catalog"}
    assert all(text.strip() for text in sources.values())


@pytest.mark.parametrize("name", names("models"))
def test_every_model_names_its_source(name: str) -> None:
    """A model has one sentence for all its numbers."""
    assert len(load_model(name).source) > 20


@pytest.mark.parametrize("name", names("clusters"))
def test_every_figure_of_a_cluster_names_its_source(name: str) -> None:
    """So does each field of a cluster, and each of its tiers."""
    content = entry("clusters", name)
    figures = set(content) - {"name", "gpu", "tiers", "sources", "catalog"}
    assert set(content["sources"]) == figures | {f"tiers.{tier['name']}" for tier in content["tiers"]}


# bf16 (the V100's fp16) and fp8 in TFLOP/s, memory bandwidth in GB/s, usable GiB, NVLink GB/s in one direction
FIGURES = {
    "v100-16": (125, None, 900, 15.78, 150),
    "v100-32": (125, None, 900, 31.74, 150),
    "a100-40-sxm": (312, None, 1555, 39.39, 300),
    "a100-80-sxm": (312, None, 2039, 79.15, 300),
    "a100-40-pcie": (312, None, 1555, 39.39, 0),
    "a100-80-pcie": (312, None, 1935, 79.15, 0),
    "a800-80-sxm": (312, None, 2039, 79.15, 200),
    "a10g": (70, None, 600, 22.06, 0),
    "l4": (121, 242, 300, 22.03, 0),
    "l40s": (362, 733, 864, 44.40, 0),
    "rtx-4090": (165.2, 330.3, 1008, 23.64, 0),
    "h100-sxm": (989, 1979, 3350, 79.10, 450),
    "h100-pcie": (756, 1513, 2000, 79.10, 0),
    "h100-nvl": (835, 1671, 3900, 93.10, 300),
    "h100-sxm-96": (989, 1979, 2400, 95.04, 450),
    "h800-sxm": (989, 1979, 3350, 79.10, 200),
    "h20": (148, 296, 4000, 94.99, 450),
    "h200": (989, 1979, 4800, 139.80, 450),
    "gh200": (989, 1979, 4000, 94.50, 450),
    "b200": (2250, 4500, 8000, 178.35, 900),
    "b300": (2250, 4500, 8000, 267.69, 900),
    "gb200": (2450, 4900, 8000, 184.31, 900),
    "gb300": (2450, 4900, 8000, 276.60, 900),
    "mi250x": (191.5, None, 1600, 63.98, 100),
    "mi300x": (1307.4, 2614.9, 5300, 191.98, 448),
    "mi325x": (1307.4, 2614.9, 6000, 255.98, 448),
    "mi355x": (2516.6, 5033.2, 8000, 287.98, 537.6),
}


@pytest.mark.parametrize("name", names("gpus"))
def test_the_figures_of_every_gpu(name: str) -> None:
    """Peaks are dense (the figure with sparsity, twice as large, is the usual mistake), links in one direction."""
    gpu = load_gpu(name)
    bf16, fp8, bandwidth, usable, nvlink = FIGURES[name]
    assert gpu.peak_flops["bf16"] == pytest.approx(bf16 * 1e12)
    assert gpu.peak_flops.get("fp8") == (pytest.approx(fp8 * 1e12) if fp8 else None)
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth * 1e9)
    assert gpu.usable_memory_bytes == round(usable * 2**30)
    assert gpu.nvlink_bandwidth_bytes_per_s == pytest.approx(nvlink * 1e9)
    assert 0.9 < gpu.usable_memory_bytes / gpu.nominal_memory_bytes < 1.075


@pytest.mark.parametrize("name", names("clusters"))
def test_a_cluster_agrees_with_its_gpu_and_has_a_link_fraction_for_each_tier(name: str) -> None:
    """The NVLink tier carries what the GPU's links carry, and the profile knows every kind of tier."""
    cluster = load_cluster(name, 16)
    fractions = load_profile(cluster.gpu.name).link_fraction
    assert {tier.links for tier in cluster.tiers} <= set(fractions)
    nvlink = [tier.bandwidth_bytes_per_s for tier in cluster.tiers if tier.links == "nvlink"]
    expected = cluster.gpu.nvlink_bandwidth_bytes_per_s
    assert nvlink == pytest.approx([expected] if expected else [])


@pytest.mark.parametrize("name", names("gpus"))
def test_every_gpu_has_the_nodes_it_is_usually_in(name: str) -> None:
    """--gpu alone is enough for any GPU of the catalog."""
    assert default_cluster(name, 16).gpu == load_gpu(name)


@pytest.mark.parametrize(
    ("name", "gpus_per_node", "domains", "network_bytes_per_s"),
    [
        ("dgx-h100", 8, [8, None], 50e9),
        ("gb200-nvl72", 4, [72, None], 50e9),
        ("gb300-nvl72", 4, [72, None], 100e9),
        ("aws-p4d", 8, [8, None], 6.25e9),
        ("aws-p5", 8, [8, None], 50e9),
        ("aws-p6-b200", 8, [8, None], 50e9),
        ("aws-g5", 8, [8, None], 12.5e9 / 8),
        ("hgx-h800", 8, [8, None], 50e9),
        ("h100-nvl-node", 8, [2, 8, None], 25e9 / 8),
        ("a100-4gpu", 4, [4, None], 25e9),
        ("mi300x-node", 8, [8, None], 50e9),
        ("dgx-1-v100", 8, [8, None], 6.25e9),
    ],
)
def test_the_nodes_and_networks_of_known_clusters(
    name: str, gpus_per_node: int, domains: list[int | None], network_bytes_per_s: float
) -> None:
    """GPUs of a host, domains of the tiers, and what one GPU has of the outermost network."""
    cluster = load_cluster(name, 144)
    assert cluster.gpus_per_node == gpus_per_node
    assert [tier.domain_gpus for tier in cluster.tiers] == domains
    assert cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(network_bytes_per_s)


def test_the_llama3_cluster_has_its_tiers_and_oversubscription() -> None:
    """NVLink 8, rack 16, pod 3072 at 400 Gb/s for each GPU, a seventh of that between pods."""
    tiers = load_cluster("llama3-roce", 16384).tiers
    assert [tier.domain_gpus for tier in tiers] == [8, 16, 3072, None]
    assert [tier.bandwidth_bytes_per_s for tier in tiers[1:]] == [50e9, 50e9, 50e9 / 7]


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("llama3-70b", "llama3-70b"),
        ("llama-3-70b", "llama3-70b"),
        ("LLAMA3_70B", "llama3-70b"),
        ("meta-llama/Meta-Llama-3-70B", "llama3-70b"),
        ("llama3-405b", "llama3.1-405b"),
        ("llama3.3-70b", "llama3.3-70b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("DeepSeek-R1", "deepseek-v3"),
        ("google/gemma-2-9b", "gemma2-9b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("EleutherAI/pythia-12b", "pythia-12b"),
        ("llama4-maverick", "llama4-maverick-17b-128e"),
        ("meta-llama/Llama-3.2-1B", "llama3.2-1b"),
        ("gpt3", "gpt3-175b"),
        ("Qwen/Qwen2.5-72B", "qwen2.5-72b"),
    ],
)
def test_models_answer_to_the_names_people_use(alias: str, name: str) -> None:
    """Case, separators and Hugging Face ids do not matter."""
    assert load_model(alias).name == name


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_or_alias_stands_for_two_entries(kind: catalog.Kind) -> None:
    """After dropping case and separators, names and aliases are still distinct between entries."""
    owners: dict[str, str] = {}
    for name in names(kind):
        for spelling in [name, *entry(kind, name).get("catalog", {}).get("aliases", [])]:
            key = "".join(letter for letter in spelling.lower() if letter.isalnum())
            assert owners.setdefault(key, name) == name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_model("lama3-70b"), r"^unknown model 'lama3-70b'; did you mean 'llama3-70b'"),
        (lambda: load_model("???"), r"^unknown model '\?\?\?'; known: bloom-176b, "),
        (lambda: load_gpu("h1000"), r"^unknown gpu 'h1000'"),
        (lambda: load_profile("h1000"), r"^unknown gpu 'h1000'"),
        (lambda: load_cluster("dgx-h10", 8), r"^unknown cluster 'dgx-h10'; did you mean 'dgx-h100'"),
        (lambda: load_recipe("megatronn"), r"^unknown framework 'megatronn'; did you mean 'megatron'"),
    ],
)
def test_unknown_names_get_the_nearest_ones(call: Any, message: str) -> None:
    """The message says what kind of thing is unknown and what is near."""
    with pytest.raises(UnknownNameError, match=message):
        call()


@pytest.mark.parametrize(
    ("memory", "gpu"),
    [
        ("80GB", "h100-sxm"),
        ("40GB", "a100-40-sxm"),
        ("141GB", "h200"),
        ("192GB", "b200"),
        ("24GB", "l4"),
        ("32GB", "v100-32"),
    ],
)
def test_a_memory_size_alone_stands_for_a_gpu(memory: str, gpu: str) -> None:
    """80GB is an H100 SXM, in the nodes it is sold in."""
    found = nominal_gpu(int(memory.removesuffix("GB")) * 10**9)
    assert found is not None
    assert found.name == gpu
    assert default_cluster(found.name, 16).gpu == found


def test_a_memory_size_that_no_card_has_stands_for_none() -> None:
    """96 GB is nobody's label here."""
    assert nominal_gpu(96 * 10**9) is None


@pytest.mark.parametrize(
    ("mem", "expected"),
    [
        (None, round(79.10 * 2**30)),
        ("80GB", round(79.10 * 2**30)),
        ("80", round(79.10 * 2**30)),
        ("80G", round(79.10 * 2**30)),
        ("80e9B", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("70GB", 70 * 10**9),
    ],
)
def test_the_nominal_size_means_the_measured_memory_and_all_else_is_literal(mem: str | None, expected: int) -> None:
    """An '80 GB' H100 has 79.1 GiB; 80e9B and 80GiB mean what they say."""
    capacity = capacity_bytes(load_gpu("h100-sxm"), mem)
    assert capacity.bytes == expected
    assert "\n" not in capacity.reading
    assert "GiB" in capacity.reading


def test_the_size_of_an_unknown_card_is_literal() -> None:
    """Without a GPU 80GB is 80e9 bytes; without either there is no answer; nonsense is refused."""
    assert capacity_bytes(None, "80GB").bytes == 80 * 10**9
    with pytest.raises(SpecError, match="a memory size or a GPU is needed"):
        capacity_bytes(None, None)
    with pytest.raises(UnitError, match="which is bits"):
        capacity_bytes(load_gpu("h100"), "80Gb")


def test_profiles_answer_to_any_name_of_their_gpu() -> None:
    """A profile belongs to a GPU, whatever it is called."""
    assert load_profile("NVIDIA H100 80GB HBM3") == load_profile("h100-sxm")


def test_files_are_read_like_entries(tmp_path: Path) -> None:
    """A name that ends in .toml is a file; a cluster file may name a GPU of the catalog or describe one."""
    source = data_folder() / "clusters" / "dgx-h100.toml"
    copy = tmp_path / "mine.toml"
    copy.write_text(source.read_text(encoding="utf-8").replace('name = "dgx-h100"', 'name = "mine"'), encoding="utf-8")
    assert load_cluster(str(copy), 32) == load_cluster("dgx-h100", 32).replaced(name="mine")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "^cannot read .*mine.toml: No such file"),
        (b"name = ", "mine.toml is not valid TOML"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'name = "m"\nlayer = 3', "unknown field 'layer' in model; did you mean 'layers'"),
    ],
)
def test_bad_files_are_refused_in_our_words(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Missing, broken and misspelt files all give a SpecError."""
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        load_model(str(path))


def test_the_data_folder_is_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    """Beside the package in a checkout, inside it when installed; a missing one is said."""
    assert data_folder() == ROOT / "data"
    package = tmp_path / "site-packages" / "cost_models"
    package.mkdir(parents=True)
    with pytest.raises(SpecError, match="the catalog is missing"):
        data_folder(package)
    (package.parent / "data" / "models").mkdir(parents=True)
    assert data_folder(package) == package.parent / "data"
    (package / "data" / "models").mkdir(parents=True)
    assert data_folder(package) == package / "data"


def test_the_digest_follows_content_and_nothing_else() -> None:
    """The same content gives the same digest, any change another, and the order counts."""
    gpu, model = load_gpu("h100"), load_model("llama3-8b")
    assert digest(gpu, model) == digest(load_gpu("h100-sxm"), load_model("llama-3-8b"))
    assert len({digest(gpu), digest(gpu.replaced(power_w=699.0)), digest(gpu, model), digest(model, gpu)}) == 4
    assert len(digest()) == 64


def test_loading_the_catalog_imports_nothing_heavy() -> None:
    """A training rank and the command line's help load no symbolic, tabular or solver package."""
    script = (
        "import sys; from cost_models.specs import catalog; catalog.load_model('llama3-70b'); "
        "print([m for m in ('sympy', 'pandas', 'pulp', 'networkx', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
