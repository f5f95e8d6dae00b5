"""What two kernels that store the same keys ask of memory, line by line, counted without a GPU."""

import torch

from solutions.cuda_memory_ops import MemoryKernels
from solutions.cuda_memory_ops.naive import NaiveMemoryKernels
from yaie.cuda.on_cpu import recording

TOKENS, KV_HEADS, HEAD_DIM = 64, 4, 32
keys, values = (torch.randn(TOKENS, KV_HEADS, HEAD_DIM) for _ in "kv")
key_blocks, value_blocks = (torch.zeros(8, 16, KV_HEADS, HEAD_DIM) for _ in "kv")
slots = torch.arange(TOKENS)

for name, kernels in (("naive", NaiveMemoryKernels()), ("tuned", MemoryKernels())):
    with recording() as launches:
        kernels.store_kv(keys, values, key_blocks, value_blocks, slots)
    [launch] = launches
    print(f"{name}: {launch.blocks} blocks of {launch.threads} threads")
    for line in sorted(launch.lines, key=lambda line: line.line):
        traffic = line.traffic
        print(
            f"  {line.file}, line {line.line:3}  {line.kind:12}  {traffic.requests:5} requests"
            f"  {traffic.sectors:6} sectors  {traffic.efficiency:4.0%} used"
        )
