"""How many threads PyTorch computes with on a CPU."""

import os

import torch

from yaie.core.processor import usable_cores

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def use_threads(wanted: int | None, num_ranks: int = 1) -> None:
    """Compute with so many threads from here on; None for what the environment says, else one for each
    physical core that this process may use. num_ranks: processes that share these threads.

    PyTorch looks at neither affinity nor quotas everywhere. It never gets more than it has: a caller may
    have told it.
    """
    if wanted is None:
        cores, has = usable_cores(), torch.get_num_threads()
        is_told = cores is None or any(os.environ.get(name) for name in VARIABLES)
        if is_told and num_ranks == 1:
            return
        wanted = has if is_told or cores is None else min(cores, has)
    torch.set_num_threads(max(1, wanted // num_ranks))
