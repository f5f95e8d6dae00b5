"""Batches over blocks of no order, and attention in float64 that a library's is held against."""

import torch
from torch import Tensor

from solutions.paged_cache import KVPool
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec
from yaie.core.contracts import BatchAttention

SHAPES = {
    "decodes": [(1, 1), (1, 16), (1, 17), (1, 90)],
    "prompts": [(2, 2), (16, 16), (33, 33)],
    "chunks": [(5, 40), (20, 36)],
    "all of them": [(1, 33), (1, 5), (7, 7), (3, 50), (1, 20)],
}
PLAIN = AttentionSpec(0.3)
SPECS = {
    "plain": PLAIN,
    "window": AttentionSpec(0.3, window=9),
    "softcap": AttentionSpec(0.3, softcap=2.0),
}


def batch_of(shapes: list[tuple[int, int]], block: int, device: torch.device) -> AttentionBatch:
    """Sequences of (queries, keys) in blocks of no order; what a table has past them is another's."""
    queries, keys = [q for q, _ in shapes], [k for _, k in shapes]
    width = -(-max(keys) // block)
    order = torch.randperm(len(shapes) * width, generator=torch.Generator().manual_seed(5))
    tables = order.view(len(shapes), width)
    positions = torch.cat([torch.arange(k - q, k) for q, k in shapes])
    owner = torch.repeat_interleave(torch.arange(len(shapes)), torch.tensor(queries))
    slots = tables[owner, positions // block] * block + positions % block
    starts = torch.tensor([0, *queries]).cumsum(0).int()
    on_device = [x.to(device) for x in (starts, torch.tensor(keys).int(), tables.int())]
    return AttentionBatch(queries, keys, *on_device, slots.to(device), positions.to(device))


def naive(
    q: Tensor, keys: Tensor, values: Tensor, batch: AttentionBatch, spec: AttentionSpec
) -> Tensor:
    """Query by query and head by head, in float64."""
    q, keys, values = (x.double().cpu() for x in (q, keys, values))
    size, group = keys.shape[1], q.shape[1] // keys.shape[2]
    out, row = torch.zeros(q.shape, dtype=torch.float64), 0
    for table, count, length in zip(
        batch.block_tables.tolist(), batch.query_lens, batch.kv_lens, strict=True
    ):
        slots = [table[at // size] * size + at % size for at in range(length)]
        k, v = (x.flatten(0, 1)[slots] for x in (keys, values))
        for position in range(length - count, length):
            first = 0 if spec.window is None else max(0, position - spec.window + 1)
            seen = slice(first, position + 1)
            for head in range(q.shape[1]):
                scores = k[seen, head // group] @ q[row, head] * spec.scale
                if spec.softcap is not None:
                    scores = spec.softcap * (scores / spec.softcap).tanh()
                out[row, head] = scores.softmax(0) @ v[seen, head // group]
            row += 1
    return out


class Layers:
    """A pool of some layers with keys in it, and queries, keys and values for one of them."""

    def __init__(
        self, batch: AttentionBatch, block: int, heads: int, kv_heads: int, dim: int,
        dtype: torch.dtype = torch.float16, layers: int = 1,
    ) -> None:  # fmt: skip
        device = batch.seq_lens.device
        generator = torch.Generator().manual_seed(2)
        specs = [KVLayerSpec(kv_heads, dim)] * layers
        self.pool = KVPool(specs, batch.block_tables.numel(), block, dtype, device)
        for layer in range(layers):
            for blocks in self.pool.blocks(layer):
                blocks.copy_(torch.randn(blocks.shape, generator=generator))
        tokens = len(batch.positions)
        fused = torch.randn(tokens, heads + 2 * kv_heads, dim, generator=generator)
        qkv = fused.to(device, dtype).split([heads, kv_heads, kv_heads], dim=1)
        self.q, self.k, self.v = qkv  # views of one product, as a layer has them


def assert_attends(
    attention: BatchAttention,
    layers: Layers,
    batch: AttentionBatch,
    spec: AttentionSpec,
    tolerance: float,
) -> None:
    out = attention.run(0, layers.q, layers.k, layers.v, spec, attention.plan(batch))
    expected = naive(layers.q, *layers.pool.blocks(0), batch, spec)
    # Relative too: a number from 2 to 4 in bfloat16 is rounded by up to 2 ** -7 all by itself.
    torch.testing.assert_close(out.double().cpu(), expected, rtol=tolerance, atol=tolerance)
