"""How many threads PyTorch computes with on a CPU."""

import os

import torch

from yaie.core.processor import usable_cores

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def use_threads(wanted: int | None) -> None:
    """Compute with so many threads from here on; None for what the environment says, else one for each
    physical core that this process may use.

    PyTorch looks at neither affinity nor quotas everywhere. It never gets more than it has: a caller may
    have told it.
    """
    if wanted is None:
        cores = usable_cores()
        if cores is None or any(os.environ.get(name) for name in VARIABLES):
            return
        wanted = min(cores, torch.get_num_threads())
    torch.set_num_threads(wanted)
