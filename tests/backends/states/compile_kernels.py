"""Compiles every launch of the Triton kernels for an H200, on a machine without a GPU, as far as Triton
judges the source. Prints the kernels' names."""

from collections.abc import Callable
from typing import Any

import torch
from triton import compiler
from triton.runtime import driver
from triton.runtime.jit import KernelInterface

from grader.triton_compiler import _NoGPU, to_ttir
from solutions import state_cache
from tests.backends.states.cases import Shape, make_case
from yaie.backends.states.triton import TritonStateOps

CHUNKS = Shape([70, 1], [True, False], 0, 1, 2, 2, 128, 128, 1)
DECODES = CHUNKS._replace(lens=[1, 1], behind=0)
FEW = CHUNKS._replace(lens=[3], is_fresh=[True])


def main() -> None:
    driver.set_active(_NoGPU())
    compiler.compile = to_ttir
    names: set[str] = set()

    def launch_on(kernel: Any, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            kernel.warmup(*args, grid=grid, **kwargs)
            names.add(kernel.__name__)

        return launch

    KernelInterface.__getitem__ = launch_on
    ops = TritonStateOps(state_cache)
    for dtype in (torch.float32, torch.bfloat16):
        for rule in ("short_conv", "gated_delta_rule", "selective_scan"):
            for shape in (CHUNKS,) if dtype == torch.float32 else (CHUNKS, DECODES, FEW):
                case = make_case(rule, shape, dtype, silu=True)
                case.run(ops, case.pool)
        heads, gates = torch.empty(3, 4, 128, dtype=dtype), torch.empty(3, 8, dtype=dtype)
        ops.delta_inputs(heads, heads, gates, gates, torch.empty(8), torch.empty(8))
        ops.sigmoid_gate(heads, heads)
        for gate_first in (False, True):
            wide = torch.empty(3, 512, dtype=dtype)
            ops.gated_norm(heads, wide, wide[0, :128], 1e-6, gate_first)
    print(*sorted(names))


if __name__ == "__main__":
    main()
