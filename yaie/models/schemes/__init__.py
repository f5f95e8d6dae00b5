"""How the weight of a product is stored and multiplied: a scheme for each way, in a file of its own.

    plain           as the checkpoint has it, by `F.linear`
    onednn_packed   in the order in which oneDNN's kernel for CPUs reads it
    gptq_int4       packed in four bits, as checkpoints of GPTQ have it
    gptq_int8       from such a checkpoint in eight bits, a byte for each weight
    awq_int4, compressed_int4    from checkpoints of AWQ and of compressed-tensors, packed as GPTQ's

Adapters know layouts only. `choose_scheme` picks by device, dtype and size; for a weight that is packed
`Packing` names the scheme.
"""

import torch

from . import awq, compressed, gptq, packed, plain  # noqa: F401  (importing registers them)
from .base import Scheme, register_scheme, registered_schemes
from .words import Packing

__all__ = ["PREFERRED", "Packing", "Scheme", "choose_scheme", "register_scheme"]

PREFERRED = ("onednn_packed", "plain")
"""The fastest first; the last one takes any weight."""


def choose_scheme(
    out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
) -> type[Scheme]:
    """The fastest scheme for a weight [out, in] that a checkpoint stores as floating-point numbers."""
    schemes = (registered_schemes()[name] for name in PREFERRED)
    return next(kind for kind in schemes if kind.suits(out_features, in_features, dtype, device))
