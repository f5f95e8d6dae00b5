from typing import Any

import torch


def attack_rows_of_five(part: Any) -> Any:
    """A row need not have as many numbers as a tile."""
    torch.manual_seed(0)
    return part.LayerKernels().rms_norm(torch.randn(3, 5), torch.ones(5), 1e-6)
