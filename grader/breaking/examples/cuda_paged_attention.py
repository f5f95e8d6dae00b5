from typing import Any

import torch


def attack_a_difference_in_the_middle(part: Any) -> Any:
    """An equal entry behind a difference does not count."""
    tokens = torch.tensor([7, 8, 9, 4], dtype=torch.int32)
    keys = torch.tensor([[7, 8, 1, 4], [7, 8, 9, 4]], dtype=torch.int32)
    lens = torch.tensor([4, 3], dtype=torch.int32)
    return part.PrefixKernel().longest_common_prefix(tokens, keys, lens)
