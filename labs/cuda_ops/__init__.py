"""Lab 14: the operations between the products of a layer, in CUDA C++."""

from .layer_kernels import LayerKernels

__all__ = ["LayerKernels"]
