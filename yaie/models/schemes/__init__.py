"""How the weight of a product is stored and multiplied: a scheme for each way, in a file of its kind.

    plain           as the checkpoint has it, by `F.linear`
    onednn_packed   in the order in which oneDNN's kernel for CPUs reads it
    gptq_int4       packed in four bits, as checkpoints of GPTQ have it
    gptq_int8       from such a checkpoint in eight bits, a byte for each weight
    awq_int4        from AWQ's, packed as GPTQ's
    compressed_int4, compressed_int8, plain_int8    from those of compressed-tensors, likewise
    fp8             from floating-point numbers of eight bits, into one of the first two

Adapters know layouts only. `choose_scheme` picks by device, dtype and size; for a weight that is packed
`Packing` names the scheme.
"""

from . import awq, compressed, floats, fp8, gptq  # noqa: F401  (importing registers them)
from .base import PREFERRED, Scheme, choose_scheme, register_scheme
from .words import Packing

__all__ = ["PREFERRED", "Packing", "Scheme", "choose_scheme", "register_scheme"]
