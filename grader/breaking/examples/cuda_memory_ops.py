from typing import Any

import torch


def attack_a_copy(part: Any) -> Any:
    """Block 0 is copied to block 2, in both tensors, and nothing else changes."""
    tensors = [torch.arange(24.0).reshape(3, 2, 4), torch.arange(36.0).reshape(3, 2, 6)]
    part.MemoryKernels().copy_blocks(tensors, torch.tensor([[0, 2]]))
    return tensors
