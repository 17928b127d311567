"""The script that starts the ranks of an export, once on each node."""

import shlex
from collections.abc import Mapping

from planner.document import Configuration

__all__ = ["launch_script", "torchrun"]

HEAD = """\
#!/bin/sh
# {title}
# Run it on every node; NODE_RANK, MASTER_ADDR and MASTER_PORT say which node this is and where the first one listens.
set -euf
cd "$(dirname "$0")"
"""


def launch_script(title: str, env: Mapping[str, str], command: str) -> str:
    """A shell script that sets some variables and runs a command; what it is given goes to the command too."""
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(env.items()))
    return HEAD.format(title=title) + variables + command + ' "$@"\n'


def torchrun(configuration: Configuration, arguments: str) -> str:
    """The command that starts the ranks of this node with torchrun; the last node may be filled in part."""
    gpus, of_node = configuration.parallelism.gpus_used, configuration.cluster.gpus_per_node
    nodes, rest = -(-gpus // of_node), gpus % of_node
    ranks = str(min(gpus, of_node))
    count = f"ranks={ranks}\n"
    if nodes > 1 and rest:
        count += f'[ "${{NODE_RANK:-0}}" -lt {nodes - 1} ] || ranks={rest}\n'
    return (
        f'{count}exec torchrun --nnodes {nodes} --nproc-per-node "$ranks" --node-rank "${{NODE_RANK:-0}}" '
        f'--master-addr "${{MASTER_ADDR:-localhost}}" --master-port "${{MASTER_PORT:-29500}}" {arguments}'
    )
