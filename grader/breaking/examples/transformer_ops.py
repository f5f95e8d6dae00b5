from typing import Any

import torch


def attack_norm_of_two_rows(part: Any) -> Any:
    """Each row is divided by the root of the mean of its own squares."""
    x = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    return part.TransformerOps().rms_norm(x, torch.ones(2), 1e-6)
