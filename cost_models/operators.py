"""The opaque operators of a cost expression: hardware-free names that a profile binds to seconds when it is lowered.

Each is a sympy Function of symbolic sizes; `kernels.bind`, `communication.bind` and `overlap.bind` give the numpy
bodies. All return seconds, but for the four at the end, which only choose or round. Those stand in for sympy's Max,
Piecewise and ceiling, which cost seconds to build and rewrite where nothing is to be simplified.
"""

from typing import Any

from sympy import Function

from cost_models.specs.kernel_tables import ElementwiseKind
from cost_models.vocabulary import ELEMENTWISE_KINDS, elementwise_name

__all__ = [
    "ELEMENTWISE",
    "NAMES",
    "all_gather_s",
    "all_reduce_s",
    "all_to_all_s",
    "at_least",
    "attention_backward_s",
    "attention_forward_s",
    "beyond_backward_s",
    "beyond_forward_s",
    "beyond_split_s",
    "ceiling",
    "elementwise_s",
    "expert_exchange_s",
    "exposed_beside_copies_s",
    "exposed_s",
    "from_host_s",
    "gemm_forward_s",
    "gemm_input_grad_s",
    "gemm_weight_grad_s",
    "grouped_gemm_forward_s",
    "grouped_gemm_input_grad_s",
    "grouped_gemm_weight_grad_s",
    "hop_end_s",
    "host_step_s",
    "launch_s",
    "maximum",
    "minimum",
    "reduce_scatter_s",
    "to_host_s",
]

# gemm(rows, columns, inner): (rows x inner) @ (inner x columns); the three layouts run at different rates.
gemm_forward_s = Function("gemm_forward_s")
gemm_input_grad_s = Function("gemm_input_grad_s")
gemm_weight_grad_s = Function("gemm_weight_grad_s")
# attention(batch, heads, queries, keys, head_dim): fused, causal; queries < keys when the context is split.
attention_forward_s = Function("attention_forward_s")
attention_backward_s = Function("attention_backward_s")
# grouped_gemm(rows of all groups, columns, inner, groups): one product an expert, rows shared out evenly.
grouped_gemm_forward_s = Function("grouped_gemm_forward_s")
grouped_gemm_input_grad_s = Function("grouped_gemm_input_grad_s")
grouped_gemm_weight_grad_s = Function("grouped_gemm_weight_grad_s")
# elementwise(bytes read and written): bound by device memory; kinds that profiles measure apart have their own names.
elementwise_s = Function("elementwise_s")
ELEMENTWISE: dict[ElementwiseKind, Any] = {kind: Function(elementwise_name(kind)) for kind in ELEMENTWISE_KINDS}
# launch(kernels): what the host needs to launch that many kernels.
launch_s = Function("launch_s")
# beyond(layers, tokens of a rank, ranks that share each): what layers take in a run beyond their operators one by one,
# all parts of a pass; beyond_split: what a backward in two parts takes more than one in one go.
beyond_forward_s = Function("beyond_forward_s")
beyond_backward_s = Function("beyond_backward_s")
beyond_split_s = Function("beyond_split_s")
# hop_end(tokens of a rank): what the rank itself does to send them to the next stage, or to receive them.
hop_end_s = Function("hop_end_s")
# collective(bytes of the whole tensor, ranks, stride between neighbouring ranks).
all_gather_s = Function("all_gather_s")
reduce_scatter_s = Function("reduce_scatter_s")
all_reduce_s = Function("all_reduce_s")
# all_to_all(bytes that a rank holds, ranks, stride); expert_exchange(bytes of all copies a rank sends, copies of a
# token, ranks, stride): copies to one node may travel once.
all_to_all_s = Function("all_to_all_s")
expert_exchange_s = Function("expert_exchange_s")
# exposed(compute seconds, communication seconds): what the communication adds to the compute that it runs beside.
exposed_s = Function("exposed_s")
# exposed_beside_copies(compute, communication, copies from the host, copies to the host), seconds: what the last three
# add to the compute that they run beside.
exposed_beside_copies_s = Function("exposed_beside_copies_s")
# from_host(bytes), to_host(bytes): pinned copies over the host link; host_step(bytes that the host reads and writes).
from_host_s = Function("from_host_s")
to_host_s = Function("to_host_s")
host_step_s = Function("host_step_s")
# at_least(a, b): 1 where a >= b, else 0.
at_least = Function("at_least")
# maximum(a, b): the larger of two.
maximum = Function("maximum")
# minimum(a, b): the smaller of two.
minimum = Function("minimum")
# ceiling(a): the next whole number.
ceiling = Function("ceiling")
# Every function that an expression can call.
NAMES = tuple(dict.fromkeys([*(name for name in __all__ if name.islower()), *map(elementwise_name, ELEMENTWISE_KINDS)]))
