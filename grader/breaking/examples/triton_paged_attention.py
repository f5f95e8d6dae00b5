from typing import Any

import torch

from yaie.core.batch import AttentionSpec


def attack_a_decode_of_two_sequences(part: Any) -> Any:
    """Two sequences of 5 and 3 keys, in blocks of 4 that lie apart."""
    torch.manual_seed(0)
    keys, values = torch.randn(2, 6, 4, 1, 16).unbind()
    tables = torch.tensor([[3, 1], [5, 0]], dtype=torch.int32)
    lens = torch.tensor([5, 3], dtype=torch.int32)
    q = torch.randn(2, 2, 16)
    spec = AttentionSpec(scale=0.25)
    return part.PagedAttention().decode(q, keys, values, tables, lens, spec, max_seq_len=5)
