"""Matrix products of few rows, in Triton, with the operations around them in the same launch.

    kernels   what a program computes
    tiles     how a product is cut into programs
    fused     the product after a norm, with a gate, onto a residual: what adapters call
    packed    the product on weights of four bits
    unpacked  the same for many rows

A library's product of one row leaves most of a GPU's bandwidth unused, and each norm, gate and addition
around it is a launch more. Here a program asks for its weights before the kernel in front of it has
ended, and waits only then.
"""

from yaie.backends.gemm.fused import FewRows
from yaie.backends.gemm.packed import PackedFewRows
from yaie.backends.gemm.unpacked import product_of_many
from yaie.core.interpreter import repair

__all__ = ["FewRows", "PackedFewRows", "product_of_many"]

repair()
