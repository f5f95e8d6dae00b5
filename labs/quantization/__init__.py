"""Lab 19: weights in eight and in four bits, and keys and values in eight."""

from yaie.core.contracts import quantizing as contracts

from .gptq import Gptq, Hessian
from .int4 import Int4
from .int8 import Int8
from .kv_pool import Int8KVPool

__all__ = ["Gptq", "Hessian", "Int4", "Int8", "Int8KVPool", "fused_int4"]


def fused_int4() -> contracts.FusedInt4:
    """The kernels, which are imported when they are first wanted: not every machine has Triton."""
    from yaie.core.interpreter import repair

    from .fused import FusedInt4

    repair()
    return FusedInt4()
