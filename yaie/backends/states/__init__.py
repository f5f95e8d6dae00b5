"""Layers that keep a state: short convolutions, the gated delta rule, Mamba-2. What a model of attention
alone never imports.

`StateOps` (`yaie.core.contracts.states`) says what is computed. `naive.py` does it token by token;
`torch.py` in chunks, with `varlen.py` for sequences of any lengths; `cpu.py` calls the C++ of `source`,
through `library.py`; `triton.py` launches the kernels of `kernels`. `around.py` is what stands around
the rules in a layer.
"""

from yaie.core.contracts.states import StateOps


def make_state_ops(backend: str) -> StateOps:
    """What computes layers with a state for the backend of this name: Triton, C++, or else PyTorch.

    Raises KernelError where C++ does not compile.
    """
    if backend in ("triton", "flashinfer"):
        from yaie.backends.states.triton import TritonStateOps

        return TritonStateOps()
    if backend == "cpu":
        from yaie.backends.states.cpu import CpuStateOps
        from yaie.backends.states.library import library

        return CpuStateOps(library())
    from yaie.backends.states.torch import TorchStateOps

    return TorchStateOps()
