from typing import Any

import torch


def attack_two_sequences(part: Any) -> Any:
    """The second begins behind its own tail, and one token leaves it a part of that."""
    x = torch.tensor([[1.0], [2.0], [3.0]])
    tails = torch.tensor([[[5.0, 6.0]], [[7.0, 8.0]]])
    starts = torch.tensor([0, 2, 3], dtype=torch.int32)
    return part.short_conv(x, torch.tensor([[1.0, 10.0, 100.0]]), None, tails, starts)
