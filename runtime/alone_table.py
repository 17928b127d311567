"""Everything that can be run alone, by operator."""

from collections.abc import Mapping

from runtime import alone, alone_layers, alone_links, alone_pipelines, alone_states
from runtime.alone import Maker

__all__ = ["MAKERS"]

MAKERS: Mapping[str, Maker] = {
    **alone.MAKERS,
    **alone_states.MAKERS,
    **alone_layers.MAKERS,
    **alone_layers.SHARED_MAKERS,
    **alone_links.MAKERS,
    **alone_pipelines.MAKERS,
}
