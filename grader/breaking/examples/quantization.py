from typing import Any

import torch


def attack_two_rows(part: Any) -> Any:
    """Each row has a scale of its own: the small one keeps its codes."""
    weight = torch.tensor([[1.0, -0.5, 0.25, 0.1], [0.01, -0.005, 0.0025, 0.001]])
    int8 = part.Int8()
    return int8.dequantize(int8.quantize(weight))
