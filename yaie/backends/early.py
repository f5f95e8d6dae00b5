"""Kernels that start before the one in front of them has ended: programmatic dependent launch.

Between two kernels a GPU stands still for about a microsecond, and the first loads of the second take
another. A kernel launched `early` begins as soon as the one in front has said so
(`gdc_launch_dependents`); until it calls `gdc_wait` it may touch nothing but weights and tables, since
what earlier kernels write is there only then. Every kernel that is launched early has to call it.
"""

from functools import lru_cache

import torch


@lru_cache(maxsize=8)
def starts_early(device: torch.device) -> bool:
    """Whether kernels on this device may: from Hopper on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def early_launch(early: bool) -> dict[str, bool]:
    """The launch options: none where it is off, since the interpreter does not know this one."""
    return {"launch_pdl": True} if early else {}
