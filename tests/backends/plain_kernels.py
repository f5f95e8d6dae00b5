"""The contracts of the kernels in a few lines of PyTorch each: what an engine test plugs in for them."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.models.naive_kv import causal_attention


class Store:
    def store_kv(
        self, k: Tensor, v: Tensor, key_blocks: Tensor, value_blocks: Tensor, slots: Tensor
    ) -> None:
        kept = slots >= 0
        for new, blocks in ((k, key_blocks), (v, value_blocks)):
            blocks.flatten(0, 1)[slots[kept]] = new[kept]


class Flash:
    """calls: (n, tq) of each."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert causal
        self.calls.append((q.shape[0], q.shape[1]))
        spec = AttentionSpec(scale, window)
        out = [causal_attention(*one, spec) for one in zip(q, k, v, strict=True)]
        return torch.stack(out), torch.empty(0)


class Paged:
    """decodes: sequences of each call. prefills: query lengths of each call."""

    def __init__(self) -> None:
        self.decodes: list[int] = []
        self.prefills: list[list[int]] = []

    def decode(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_seq_len: int,
    ) -> Tensor:
        assert max_seq_len >= int(seq_lens.max())
        self.decodes.append(len(q))
        starts = torch.arange(len(q) + 1)
        return self._attend(q, key_blocks, value_blocks, block_tables, starts, seq_lens, spec)

    def prefill(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_query_len: int,
    ) -> Tensor:
        lens = query_start_loc.diff().tolist()
        assert query_start_loc.dtype == seq_lens.dtype == block_tables.dtype == torch.int32
        assert max_query_len >= max(lens)
        assert int(query_start_loc[0]) == 0
        assert int(query_start_loc[-1]) == len(q)
        self.prefills.append(lens)
        return self._attend(
            q, key_blocks, value_blocks, block_tables, query_start_loc, seq_lens, spec
        )

    def _attend(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        starts: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
    ) -> Tensor:
        out = []
        for i, length in enumerate(seq_lens.tolist()):
            k, v = (
                b[block_tables[i].long()].flatten(0, 1)[:length] for b in (key_blocks, value_blocks)
            )
            out.append(causal_attention(q[starts[i] : starts[i + 1]], k, v, spec))
        return torch.cat(out)
