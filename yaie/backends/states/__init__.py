"""Layers that keep a state: short convolutions, the gated delta rule, Mamba-2. What a model of attention
alone never imports.

`StateOps` (`yaie.core.contracts.states`) says what is computed. `naive.py` does it token by token;
`torch.py` in chunks, with `varlen.py` for sequences of any lengths; `cpu.py` calls the C++ of `source`,
through `library.py`; `triton.py` launches the kernels of `kernels`. `around.py` is what stands around
the rules in a layer. Lab 22's part computes the short convolution and the delta rule in PyTorch, and
the delta rule's decode step in Triton.
"""

import torch

from yaie.backends.triton import has_triton
from yaie.core.contracts.states import StateOps
from yaie.parts import Parts

LAB = "state_cache"


def make_state_ops(backend: str, parts: Parts, device: torch.device) -> StateOps:
    """What computes layers with a state for the backend of this name: Triton, C++, or else PyTorch.
    A learner's part goes before C++. CUDA C++ has no kernels for them: on a GPU Triton's stand in, since
    PyTorch's chunks cannot be recorded in a CUDA graph.

    Raises KernelError where C++ does not compile.
    """
    part = parts[LAB]
    stands_in = backend == "cuda" and device.type == "cuda" and has_triton()
    if backend in ("triton", "flashinfer") or stands_in:
        from yaie.backends.states.triton import TritonStateOps

        return TritonStateOps(part)
    if backend == "cpu" and not parts.is_yours(LAB):
        from yaie.backends.states.cpu import CpuStateOps
        from yaie.backends.states.library import library

        return CpuStateOps(part, library())
    from yaie.backends.states.torch import TorchStateOps

    return TorchStateOps(part)
