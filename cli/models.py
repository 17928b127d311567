"""`plan models`: the models of the catalog."""

from cli.listing import print_listing
from cost_models.specs.catalog import load_model, names


def models(*, as_json: bool) -> int:
    """Prints the models; the exit code."""
    specs = [load_model(name) for name in names("models")]
    texts = {"model": [spec.name for spec in specs]}
    figures = {
        "layers": [f"{spec.layers:,}" for spec in specs],
        "hidden": [f"{spec.hidden:,}" for spec in specs],
        "ffn": [f"{spec.ffn:,}" for spec in specs],
        "heads": [f"{spec.heads}/{spec.kv_heads}" for spec in specs],
        "vocabulary": [f"{spec.vocab:,}" for spec in specs],
        "context": [f"{spec.max_seq_len:,}" for spec in specs],
    }
    return print_listing("models", specs, texts, figures, as_json=as_json)
