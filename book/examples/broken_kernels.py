"""Four wrong kernels on the CPU, and what is said of each."""

import textwrap
from pathlib import Path

# ANCHOR: call
import torch

from yaie.cuda import CudaLibrary
from yaie.cuda.on_cpu import KernelFault, settings

broken = CudaLibrary(Path(__file__).parent / "broken")
x, out = torch.randn(100), torch.zeros(100)
with settings(seed=3):
    try:
        broken.call("missing_barrier", x, out)
    except KernelFault as fault:
        race = fault
# ANCHOR_END: call


def fault_of(name: str, *arguments: torch.Tensor | int) -> KernelFault:
    try:
        broken.call(name, *arguments)
    except KernelFault as fault:
        return fault
    raise AssertionError(f"{name} should have been stopped")


rows = torch.randn(3, 33)
for found in (
    race,
    fault_of("unmasked_tail", x, out, 100),
    fault_of("early_return", x, out, 40),
    fault_of("odd_row", rows[1], out),
):
    print(f"{found.kind}, {found.where}")
    print(textwrap.indent(textwrap.fill(found.message, 92), "  "))
