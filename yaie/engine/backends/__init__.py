"""What computes a step's operations: PyTorch, Triton or CUDA C++, each from the labs that wrote it.

`choice.py` decides which backend runs and on which labs; `ops.py`, `attention.py` and `pool.py` let
kernels stand where the engine expects the parts of labs 2, 5 and 3; `build.py` makes them.
"""

from .build import fitted, make_attention, make_ops, make_pool, make_sampler, prepare
from .choice import Backend, choose_backend

__all__ = [
    "Backend",
    "choose_backend",
    "fitted",
    "make_attention",
    "make_ops",
    "make_pool",
    "make_sampler",
    "prepare",
]
