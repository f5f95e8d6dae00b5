"""Layers that keep a state: short convolutions, the gated delta rule, Mamba-2. What a model of attention
alone never imports.

`StateOps` (`yaie.core.contracts.states`) says what is computed. `naive.py` does it token by token;
`torch.py` in chunks, with `varlen.py` for sequences of any lengths; `cpu.py` calls the C++ of `source`,
through `library.py`; `triton.py` launches the kernels of `kernels`. `around.py` is what stands around
the rules in a layer. Lab 22's part computes the short convolution and the delta rule in PyTorch, and
the delta rule's decode step in Triton; it also takes drafts back that were wrong.
"""

import logging
from functools import cache
from typing import cast

import torch

from yaie.backends.triton import has_triton
from yaie.core.contracts.rollback import Rollback
from yaie.core.contracts.states import StateOps
from yaie.parts import Parts, load_part

LAB = "state_cache"
logger = logging.getLogger(__name__)


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


def rollback_of(parts: Parts) -> Rollback:
    """What takes drafts back. A learner's package of the edition before has no such functions: it serves
    with the reference's beside it, which is said once."""
    part = parts[LAB]
    if not all(hasattr(part, name) for name in ("run_ahead", "settle")):
        _say_that_it_lacks(LAB)
        part = load_part(LAB, "none").package
    return cast("Rollback", part)


@cache
def _say_that_it_lacks(lab: str) -> None:
    logger.warning(
        "your part %s takes no drafts back: the reference's run_ahead and settle stand in for task 22.7 "
        "(yaie lab upgrade %s adds it)",
        lab,
        lab,
    )
