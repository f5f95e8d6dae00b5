from typing import Any

import torch


def attack_a_prompt(part: Any) -> Any:
    """Each of 20 queries attends to its own key and to those before it."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 20, 2, 64).unbind()
    return part.FlashAttention().forward(q, k, v, scale=0.125)
