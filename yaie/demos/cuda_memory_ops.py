"""Lab 13: blocks that move, in sectors of 32 bytes, beside a thread for each row."""

from typing import Any

import torch

from yaie.cuda.on_cpu import recording
from yaie.cuda.on_cpu.launches import Traffic
from yaie.demos.cuda_traffic import WHERE
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.tensors import generator

TOKENS, WIDTH, BLOCK = 32, 128, 4
SECTOR = 32


def show(subject: Subject) -> Shown:
    """Store, gather, copy: each once, by the naive kernels and by the part's."""
    kernels, naive = subject.package.MemoryKernels(), subject.naive().NaiveMemoryKernels()
    rows: list[Row] = []
    moved = [0, 0]
    needed = right = 0
    for name, work in {"store": _store, "gather": _gather, "copy": _copy}.items():
        found = []
        for index, one in enumerate((naive, kernels)):
            with recording() as launches:
                ok = work(one)
            traffic = Traffic()
            for launch in launches:
                traffic = traffic + launch.global_loads + launch.global_stores
            found.append((traffic, len(launches)))
            moved[index] += traffic.sectors
            right += ok and index
        rows.append(row(f"{name}: launches", *(count for _, count in found)))
        rows.append(row(f"{name}: sectors touched", *(traffic.sectors for traffic, _ in found)))
        rows.append(row(f"{name}: instructions of warps", *(t.requests for t, _ in found)))
        needed += found[1][0].ideal_sectors
    rows.append(row("sectors that hold these bytes", "", needed))
    rows.append(row("right results", "", f"{right} of 3"))
    return Shown(
        f"{TOKENS} tokens of {2 * WIDTH} bytes, in blocks of {BLOCK}, {WHERE}.",
        ("a thread a row", "kernels"),
        tuple(rows),
        f"{moved[1]:,} sectors of {SECTOR} bytes are touched in place of {moved[0]:,}, for {needed:,} "
        "that hold the bytes.",
    )


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator()).bfloat16()


def _store(kernels: Any) -> bool:
    k, v = _numbers(2, TOKENS, 1, WIDTH)
    keys, values = torch.zeros(2, TOKENS // BLOCK, BLOCK, 1, WIDTH, dtype=torch.bfloat16)
    slots = torch.randperm(TOKENS, generator=generator())
    kernels.store_kv(k, v, keys, values, slots)
    stored = (blocks.flatten(0, 1)[slots] for blocks in (keys, values))
    return all(torch.equal(a, b) for a, b in zip(stored, (k, v), strict=True))


def _gather(kernels: Any) -> bool:
    blocks = _numbers(TOKENS // BLOCK, BLOCK, 1, WIDTH)
    table = torch.tensor([[5, 2, 7], [0, 2, 3]], dtype=torch.int32)
    return torch.equal(kernels.gather(blocks, table), blocks[table.long()].flatten(1, 2))


def _copy(kernels: Any) -> bool:
    """In two tensors, as of two layers."""
    tensors = [
        _numbers(TOKENS // BLOCK, BLOCK, 1, WIDTH),
        _numbers(TOKENS // BLOCK, BLOCK, 1, WIDTH),
    ]
    pairs = torch.tensor([[0, 5], [3, 1]])
    expected = [tensor.clone() for tensor in tensors]
    for tensor in expected:
        tensor[pairs[:, 1]] = tensor[pairs[:, 0]]
    kernels.copy_blocks(tensors, pairs)
    return all(torch.equal(a, b) for a, b in zip(tensors, expected, strict=True))
