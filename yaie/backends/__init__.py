"""What computes a step's operations: PyTorch, Triton or CUDA C++, each from the labs that wrote it, or
C++ for CPUs and FlashInfer, which have no lab.

`base.py` says what a backend is; `torch.py`, `triton.py`, `cuda.py`, `cpu/`, `flashinfer.py` are those
there are, `invariant/` is for `deterministic` on a GPU, and `choice.py` decides which of them runs and
on which labs. `ops.py`, `attention.py` and `pool.py` let kernels stand where the engine expects parts of
labs 2, 5 and 3.
"""

from .base import Backend, register_backend
from .choice import Choice, choose_backend, decide

__all__ = ["Backend", "Choice", "choose_backend", "decide", "register_backend"]
