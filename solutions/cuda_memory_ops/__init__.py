"""Lab 13: the operations that move keys and values, in CUDA C++."""

from .memory_kernels import MemoryKernels

__all__ = ["MemoryKernels"]
