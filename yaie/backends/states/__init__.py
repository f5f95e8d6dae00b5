"""Layers that keep a state: short convolutions, the gated delta rule, Mamba-2. What a model of attention
alone never imports.

`StateOps` (`yaie.core.contracts.states`) says what is computed. `naive.py` does it token by token;
`torch.py` in chunks, with `varlen.py` for sequences of any lengths; `triton.py` launches the kernels of
`kernels`. Lab 22's part computes the short convolution and the delta rule in PyTorch, and the delta
rule's decode step in Triton.
"""

from typing import Any

from yaie.core.contracts.states import StateOps


def make_state_ops(backend: str, part: Any) -> StateOps:
    """What computes layers with a state for the backend of this name: "triton", or else PyTorch.
    part: of lab 22, which it computes with."""
    if backend == "triton":
        from yaie.backends.states.triton import TritonStateOps

        return TritonStateOps(part.decode_kernel())
    from yaie.backends.states.torch import TorchStateOps

    return TorchStateOps(part)
