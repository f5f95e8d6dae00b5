"""What a step does to whole blocks of the pool: it moves some, stores others' and tells its own.

A step's extras may have `arriving`: `blocks` [n] int32 of another engine, whose `data` are stored
before the forward pass; and `leaving`: `blocks` [n] int32, whose `data` come with the result. Data are
uint8, layer by layer, of each K and then V, as the n blocks lie in a pool: [n * block_size, kv_heads,
head_dim] in its dtype.
"""

import numpy as np
import torch
from torch import Tensor

from yaie.core.contracts import KVPool
from yaie.core.step import Arrays, Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.transfer import on_device


def move_blocks(pool: KVPool, step: StepInput) -> None:
    """To the host, from there, and within the device, in this order."""
    for move, moves in (
        (pool.swap_out, step.swap_out), (pool.swap_in, step.swap_in), (pool.copy_blocks, step.copies)
    ):  # fmt: skip
        if len(moves):
            move([(here, there) for here, there in moves.tolist()])


def taken(pool: KVPool, adapter: ModelAdapter, blocks: Ints) -> Tensor:
    """Keys and values of the blocks [n], on the device."""
    table = on_device(blocks[None].astype(np.int64), adapter.device)
    parts = [
        part.contiguous().view(-1).view(torch.uint8)
        for layer in range(len(adapter.kv_layers))
        for part in pool.gather(layer, table)
    ]
    return torch.cat(parts)


def store(pool: KVPool, adapter: ModelAdapter, arriving: Arrays) -> None:
    """Write keys and values into their blocks."""
    starts = arriving["blocks"].astype(np.int64)[:, None] * pool.block_size
    slots = on_device((starts + np.arange(pool.block_size)).reshape(-1), adapter.device)
    data = torch.from_numpy(arriving["data"]).to(adapter.device)
    at = 0
    for index, layer in enumerate(adapter.kv_layers):
        shape = (len(slots), layer.num_kv_heads, layer.head_dim)
        size = int(np.prod(shape)) * adapter.dtype.itemsize
        keys, values = (
            data[begin : begin + size].view(adapter.dtype).view(shape) for begin in (at, at + size)
        )
        pool.write(index, keys, values, slots)
        at += 2 * size
