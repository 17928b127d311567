"""`plan clusters`: the cluster presets of the catalog."""

from cli.listing import print_listing
from cost_models.specs.catalog import load_cluster, names
from cost_models.specs.cluster import NetworkTier


def clusters(*, as_json: bool) -> int:
    """Prints the presets, each with one GPU as any number of them can be asked for; the exit code."""
    specs = [load_cluster(name, 1) for name in names("clusters")]
    texts = {
        "cluster": [spec.name for spec in specs],
        "GPU": [spec.gpu.name for spec in specs],
        "GB/s of a GPU in one direction": [", ".join(_tier(tier) for tier in spec.tiers) for spec in specs],
    }
    figures = {"GPUs a node": [str(spec.gpus_per_node) for spec in specs]}
    return print_listing("clusters", specs, texts, figures, as_json=as_json)


def _tier(tier: NetworkTier) -> str:
    reach = f" within {tier.domain_gpus:,}" if tier.domain_gpus else ""
    return f"{tier.name} {tier.bandwidth_bytes_per_s / 1e9:.4g}{reach}"
