"""Lab 22: layers that keep a state: a short convolution, the gated delta rule, where states lie, and how
they go back when drafts were wrong."""

from yaie.core.contracts import states as contracts

from .checkpoints import Checkpoints, cut_share
from .conv import short_conv
from .delta import decays, delta_chunk, delta_step
from .pool import StatePool, read_states, write_states
from .rollback import run_ahead, settle

__all__ = [
    "Checkpoints",
    "StatePool",
    "cut_share",
    "decays",
    "decode_kernel",
    "delta_chunk",
    "delta_step",
    "read_states",
    "run_ahead",
    "settle",
    "short_conv",
    "write_states",
]


def decode_kernel() -> contracts.DeltaDecode:
    """The kernel's launch, imported when it is first wanted: not every machine has Triton."""
    from yaie.core.interpreter import repair

    from .step_kernel import delta_decode

    repair()
    return delta_decode
