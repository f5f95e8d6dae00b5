"""What a backend says may be captured in a CUDA graph gives the same when the graph is replayed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from yaie.backends import Backend, choose_backend
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec, Rotation
from yaie.core.config import EngineConfig
from yaie.core.contracts import KVPool
from yaie.core.errors import KernelError
from yaie.cuda.nvcc import find_nvcc
from yaie.worker.layout import attend_through

SEQS, BLOCK, BLOCKS_EACH, HEADS, KV_HEADS, DIM = 5, 16, 8, 8, 2, 64
LONGEST = BLOCK * BLOCKS_EACH
DEVICE = torch.device("cuda")


def random_step(seed: int) -> tuple[dict[str, Tensor], list[int]]:
    """The inputs of a step of single tokens, and the number of keys of each."""
    generator = torch.Generator().manual_seed(seed)
    lens = torch.randint(1, LONGEST + 1, (SEQS,), generator=generator)
    tables = torch.randperm(SEQS * BLOCKS_EACH, generator=generator).view(SEQS, -1).int()
    qkv = torch.randn(SEQS, HEADS + 2 * KV_HEADS, DIM, generator=generator)
    inputs = {"qkv": qkv, "tables": tables, "lens": lens.int(), "positions": lens - 1}
    return {name: tensor.to(DEVICE) for name, tensor in inputs.items()}, lens.tolist()


def filled_pool(backend: Backend) -> KVPool:
    layers = [KVLayerSpec(KV_HEADS, DIM)]
    pool = backend.make_pool(layers, SEQS * BLOCKS_EACH, BLOCK, torch.float32, DEVICE, 0)
    for blocks in pool.blocks(0):
        generator = torch.Generator().manual_seed(3)
        blocks.copy_(torch.randn(blocks.shape, generator=generator))
    return pool


def step_on(
    backend: Backend, pool: KVPool, step: dict[str, Tensor], lens: list[int]
) -> Callable[[], Tensor]:
    """Rotation, attention and norm of one layer. lens: bounds on `step["lens"]`, for the host."""
    ops, attention = backend.make_ops(), backend.make_attention(pool)
    angles = torch.outer(torch.arange(LONGEST), torch.linspace(1, 0.01, DIM // 2)).to(DEVICE)
    cos, sin = angles.cos(), angles.sin()
    rows = torch.arange(SEQS, device=DEVICE)
    starts = torch.arange(SEQS + 1, dtype=torch.int32, device=DEVICE)
    weight = torch.ones(DIM, device=DEVICE)

    def run() -> Tensor:
        tables, positions = step["tables"], step["positions"]
        q, k, v = step["qkv"].clone().split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        slots = pool.slot_mapping(tables, rows, positions)
        batch = AttentionBatch([1] * SEQS, lens, starts, step["lens"], tables, slots, positions)
        attend = attend_through(attention, attention.plan(batch))
        rotation = Rotation(ops.rope, positions, cos, sin)
        return ops.rms_norm(
            attend(0, q, k, v, AttentionSpec(DIM**-0.5), rotation=rotation), weight, 1e-6
        )

    return run


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["triton", "cuda"])
@torch.inference_mode()
def test_a_captured_step_of_single_tokens_replays_for_other_sequences(name: str) -> None:
    backend = choose_backend(EngineConfig(backend=name, mine="none"), DEVICE, [DIM])  # type: ignore[arg-type]
    assert backend.may_be_captured
    try:
        backend.prepare(DEVICE)
    except KernelError as error:
        if find_nvcc() is not None:
            raise
        pytest.skip(error.message)
    step, _ = random_step(0)
    pool = filled_pool(backend)
    run = step_on(backend, pool, step, [LONGEST] * SEQS)
    run()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for seed in (1, 2):
        other, lens = random_step(seed)
        for target, plain in zip(pool.blocks(0), filled_pool(backend).blocks(0), strict=True):
            target.copy_(plain)
        for key, tensor in other.items():
            step[key].copy_(tensor)
        graph.replay()
        eager_pool = filled_pool(backend)
        expected = step_on(backend, eager_pool, other, lens)()
        torch.testing.assert_close(captured, expected, rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(pool.blocks(0), eager_pool.blocks(0), strict=True):
            torch.testing.assert_close(mine, theirs)
