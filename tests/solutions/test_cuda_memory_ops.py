"""Lab 13: blocks and rows move as PyTorch's indexing moves them, bit by bit."""

from typing import Any

import pytest
import torch
from torch import Tensor

from grader.kit.cuda_work import work_of
from solutions.cuda_memory_ops import MemoryKernels
from solutions.cuda_memory_ops.naive import NaiveMemoryKernels
from yaie.cuda.on_cpu import KernelFault

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
MEMORY, NAIVE = MemoryKernels(), NaiveMemoryKernels()
# tokens, key heads, head size, block size
CPU_SHAPES = [(1, 2, 64, 16), (3, 1, 80, 4), (2, 3, 96, 1), (5, 2, 128, 16), (2, 1, 256, 8)]
CPU_SHAPES += [(4, 1, 37, 3), (0, 2, 64, 16), (70, 1, 4, 16)]
GPU_SHAPES = [
    (8192, 8, 128, 16),
    (4097, 3, 80, 16),
    (1, 8, 64, 16),
    (333, 1, 37, 5),
    (0, 8, 128, 16),
]


def rand(*shape: int, dtype: torch.dtype, device: str, seed: int = 0) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def check_store(
    kernels: Any, shape: tuple[int, int, int, int], dtype: torch.dtype, on: str
) -> None:
    tokens, heads, d, size = shape
    product = rand(tokens, 3 * heads * d, dtype=dtype, device=on)
    k, v = product[:, heads * d :].unflatten(1, (2, heads, d)).unbind(1)
    count = (tokens + 20) // size + 1
    keys, values = (rand(count, size, heads, d, dtype=dtype, device=on, seed=s) for s in (1, 2))
    slots = torch.randperm(count * size, generator=torch.Generator().manual_seed(3))[:tokens].to(on)
    slots[::3] = -1
    right = []
    for blocks, new in ((keys, k), (values, v)):
        expected = blocks.clone()
        expected.flatten(0, 1)[slots[slots >= 0]] = new[slots >= 0]
        right.append(expected)
    kernels.store_kv(k, v, keys, values, slots)
    assert torch.equal(keys, right[0])
    assert torch.equal(values, right[1])


def check_moves(
    kernels: Any, shape: tuple[int, int, int, int], dtype: torch.dtype, on: str
) -> None:
    count, heads, d, size = shape[0] + 2, *shape[1:]
    blocks, other = (rand(count, size, heads, d, dtype=dtype, device=on, seed=s) for s in (1, 2))
    numbers = torch.randint(count, (3, 5), dtype=torch.int32)
    got = kernels.gather(blocks, numbers.to(on))
    assert torch.equal(got, blocks[numbers.long().to(on)].flatten(1, 2))
    assert kernels.gather(blocks, numbers[:, :0].to(on)).shape == (3, 0, heads, d)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3))
    pairs = order[: count // 2 * 2].view(-1, 2).to(on)
    odd = rand(count, 7, dtype=dtype, device=on, seed=5)
    tensors = [blocks, odd, other]
    right = [tensor.clone() for tensor in tensors]
    for tensor, expected in zip(tensors, right, strict=True):
        expected[pairs[:, 1]] = tensor[pairs[:, 0]]
    kernels.copy_blocks(tensors, pairs)
    for tensor, expected in zip(tensors, right, strict=True):
        assert torch.equal(tensor, expected)


@pytest.mark.parametrize("kernels", [MEMORY, NAIVE])
@pytest.mark.parametrize("shape", CPU_SHAPES)
def test_moves_are_those_of_indexing(kernels: Any, shape: tuple[int, int, int, int]) -> None:
    dtype = DTYPES[sum(shape) % 3]
    check_store(kernels, shape, dtype, "cpu")
    check_moves(kernels, (min(shape[0], 6), *shape[1:]), dtype, "cpu")


@pytest.mark.parametrize("kernels", [MEMORY, NAIVE])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_swaps_are_those_of_indexing(kernels: Any, offset: int) -> None:
    source = rand(5 * 24 + offset, dtype=torch.bfloat16, device="cpu")[offset:].view(5, 3, 8)
    target = rand(8, 3, 8, dtype=torch.bfloat16, device="cpu", seed=1)
    right = target.clone()
    right[[7, 0]] = source[[1, 4]]
    kernels.swap_blocks(source, target, torch.tensor([[1, 7], [4, 0]]))
    assert torch.equal(target, right)


def test_naive_kernels_waste_sectors_and_tuned_ones_do_not() -> None:
    k, v = (rand(32, 2, 64, dtype=torch.bfloat16, device="cpu", seed=s) for s in (0, 1))
    keys, values = torch.zeros(2, 2, 16, 2, 64, dtype=torch.bfloat16)
    slots = torch.arange(32)
    tuned = work_of(lambda: MEMORY.store_kv(k, v, keys, values, slots))
    naive = work_of(lambda: NAIVE.store_kv(k, v, keys, values, slots))
    assert tuned.stores.efficiency == 1.0
    assert tuned.stores.count == 32 * 2 * 256 / 16
    assert naive.stores.efficiency < 0.1


def test_a_block_past_the_end_is_a_fault_that_names_the_tensor() -> None:
    blocks = torch.zeros(3, 8)
    with pytest.raises(KernelFault, match="out of bounds"):
        MEMORY.copy_blocks([blocks], torch.tensor([[0, 9]]))


def test_views_that_are_not_rows_are_refused() -> None:
    k = torch.zeros(4, 2, 8).transpose(0, 1)[:, :, ::2]
    blocks = torch.zeros(2, 4, 4, 4)
    with pytest.raises(ValueError, match="not contiguous"):
        MEMORY.store_kv(k, k, blocks, blocks, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="not contiguous"):
        MEMORY.gather(blocks[:, :2], torch.zeros(1, 1, dtype=torch.int32))


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [MEMORY, NAIVE])
@pytest.mark.parametrize("shape", GPU_SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_on_a_gpu(kernels: Any, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    check_store(kernels, shape, dtype, "cuda")
    check_moves(kernels, (min(shape[0], 500), *shape[1:]), dtype, "cuda")


@pytest.mark.gpu
def test_slots_past_32_bits_on_a_gpu() -> None:
    k, v = (rand(2, 8, 128, dtype=torch.bfloat16, device="cuda", seed=s) for s in (0, 1))
    blocks = torch.zeros(131_080 + 16, 16, 8, 128, dtype=torch.bfloat16, device="cuda")
    far = 131_080 * 16 + 3  # more than 2**31 numbers
    MEMORY.store_kv(k, v, blocks, blocks, torch.tensor([far, -1], device="cuda"))
    assert torch.equal(blocks.flatten(0, 1)[far], v[0])
    got = MEMORY.gather(blocks, torch.tensor([[131_080]], dtype=torch.int32, device="cuda"))
    assert torch.equal(got[0, 3], v[0])


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [MEMORY, NAIVE])
def test_swaps_with_pinned_memory(kernels: Any) -> None:
    device = rand(40, 16, 8, 128, dtype=torch.bfloat16, device="cuda")
    host = rand(50, 16, 8, 128, dtype=torch.bfloat16, device="cpu", seed=1).pin_memory()
    right, pairs = host.clone(), torch.stack((torch.arange(30), torch.arange(30) + 15), dim=1)
    right[15:45] = device[:30].cpu()
    kernels.swap_blocks(device, host, pairs.cuda())
    torch.cuda.synchronize()
    assert torch.equal(host, right)
    kernels.swap_blocks(host, device, pairs[:5].cuda())
    assert torch.equal(device[15:20].cpu(), host[:5])
