"""`plan models`: the models of the catalog."""

from cli.listing import print_listing
from cost_models.specs.catalog import load_model, names
from cost_models.specs.parameters import active_parameters, parameters
from cost_models.specs.units import format_tokens


def models(*, as_json: bool) -> int:
    """Prints the models; the exit code."""
    specs = [load_model(name) for name in names("models")]
    texts = {"model": [spec.name for spec in specs]}
    figures = {
        "layers": [f"{spec.layers:,}" for spec in specs],
        "hidden": [f"{spec.hidden:,}" for spec in specs],
        "heads": [f"{spec.heads}/{spec.kv_heads}" for spec in specs],
        "params": [f"{parameters(spec) / 1e9:,.1f}B" for spec in specs],
        "active": [f"{active_parameters(spec) / 1e9:,.1f}B" if spec.moe else "" for spec in specs],
        "context": [format_tokens(spec.max_seq_len) for spec in specs],
    }
    return print_listing("models", specs, texts, figures, as_json=as_json)
