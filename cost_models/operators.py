"""The opaque operators of a cost expression: hardware-free names that a profile binds to seconds when it is lowered.

Each is a sympy Function of symbolic sizes; `kernels.bind`, `communication.bind` and `overlap.bind` give the numpy
bodies. All return seconds, but for the three at the end, which only choose or round. Those stand in for sympy's Max,
Piecewise and ceiling, which cost seconds to build and rewrite where nothing is to be simplified.
"""

from sympy import Function

__all__ = [
    "all_gather_s",
    "all_reduce_s",
    "at_least",
    "attention_backward_s",
    "attention_forward_s",
    "ceiling",
    "elementwise_s",
    "exposed_s",
    "gemm_forward_s",
    "gemm_input_grad_s",
    "gemm_weight_grad_s",
    "launch_s",
    "maximum",
    "reduce_scatter_s",
]

# gemm(rows, columns, inner): (rows x inner) @ (inner x columns); the three layouts run at different rates.
gemm_forward_s = Function("gemm_forward_s")
gemm_input_grad_s = Function("gemm_input_grad_s")
gemm_weight_grad_s = Function("gemm_weight_grad_s")
# attention(batch, heads, queries, keys, head_dim): fused, causal; queries < keys when the context is split.
attention_forward_s = Function("attention_forward_s")
attention_backward_s = Function("attention_backward_s")
# elementwise(bytes read and written): bound by device memory.
elementwise_s = Function("elementwise_s")
# launch(kernels): what the host needs to launch that many kernels.
launch_s = Function("launch_s")
# collective(bytes of the whole tensor, ranks, stride between neighbouring ranks).
all_gather_s = Function("all_gather_s")
reduce_scatter_s = Function("reduce_scatter_s")
all_reduce_s = Function("all_reduce_s")
# exposed(compute seconds, communication seconds): what the communication adds to the compute that it runs beside.
exposed_s = Function("exposed_s")
# at_least(a, b): 1 where a >= b, else 0.
at_least = Function("at_least")
# maximum(a, b): the larger of two.
maximum = Function("maximum")
# ceiling(a): the next whole number.
ceiling = Function("ceiling")
