"""`norm_rope_store` is the norms, the rotation and the store of the reference, in one launch."""

import pytest
import torch
from torch import Tensor

from solutions.paged_cache import KVPool
from solutions.transformer_ops import TransformerOps
from solutions.triton_ops import LayerKernels
from tests.backends.plain_kernels import Flash, Paged
from yaie.backends import choose_backend
from yaie.backends import fused as fused_kernels
from yaie.backends.attention import KernelAttention, RotateAndStore
from yaie.backends.fused import norm_rope_store
from yaie.core.batch import AttentionBatch, AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.config import EngineConfig
from yaie.parts import YOURS, Part, Parts
from yaie.worker.layout import attend_through

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK, EPS = 16, 1e-6


class Case:
    """Queries, keys and values of some tokens, as views of one product with gaps, and a pool."""

    def __init__(
        self, tokens: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype, seed: int = 0
    ) -> None:
        g = torch.Generator().manual_seed(seed)
        fused = torch.randn(tokens, heads + 2 * kv_heads + 1, dim, generator=g).to(DEVICE, dtype)
        self.q, self.k, self.v, _ = fused.split([heads, kv_heads, kv_heads, 1], dim=1)
        num_blocks = tokens // BLOCK + 4
        self.pool = KVPool([KVLayerSpec(kv_heads, dim)], num_blocks, BLOCK, dtype, DEVICE)
        for blocks in self.pool.blocks(0):
            blocks.fill_(7)
        slots = torch.randperm(num_blocks * BLOCK, generator=g)[:tokens]
        slots[tokens // 2] = -1
        self.slots = slots.to(DEVICE)
        angles = torch.outer(torch.arange(64.0), torch.rand(dim // 2, generator=g))
        weights = torch.randn(2, dim, generator=g).to(DEVICE, dtype)
        self.rotation = Rotation(
            LayerKernels().rope,
            torch.randint(0, 64, (tokens,), generator=g).to(DEVICE),
            angles.cos().to(DEVICE),
            angles.sin().to(DEVICE),
            HeadNorms(LayerKernels().rms_norm, *weights, EPS),
        )

    def separately(self) -> tuple[Tensor, Tensor]:
        """By the kernels of lab 9, one after the other; q and k afterwards."""
        assert self.rotation.norms is not None
        q, k = self.rotation.norms.apply(self.q, self.k)
        tables = (self.rotation.positions, self.rotation.cos, self.rotation.sin)
        LayerKernels().rope_and_store(q, k, self.v, *tables, *self.pool.blocks(0), self.slots)
        return q, LayerKernels().rope(q.clone(), k, *tables)[1]

    def at_once(self, keep_k: bool) -> tuple[Tensor, Tensor]:
        norm_rope_store(
            self.q, self.k, self.v, self.rotation, *self.pool.blocks(0), self.slots, keep_k
        )
        return self.q, self.k


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "dim"),
    [(1, 2, 1, 64), (5, 16, 8, 128), (3, 6, 2, 80), (7, 5, 5, 16), (20, 20, 4, 16)],
)
def test_it_is_norm_rotation_and_store(
    tokens: int,
    heads: int,
    kv_heads: int,
    dim: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused_kernels, "MANY_TOKENS", 20)  # the last one has a program a token
    separate, fused = (Case(tokens, heads, kv_heads, dim, dtype) for _ in range(2))
    before = fused.k.clone()
    q, _ = separate.separately()
    turned, k = fused.at_once(keep_k=False)
    # The sum of squares has another order: a quotient may round to its neighbour.
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.04}
    torch.testing.assert_close(turned, q, **close)
    assert torch.equal(k, before)
    for mine, theirs in zip(fused.pool.blocks(0), separate.pool.blocks(0), strict=True):
        torch.testing.assert_close(mine, theirs, **close)
        assert torch.equal(mine == 7, theirs == 7)  # nothing else was written


def test_keys_are_kept_where_attention_reads_them_itself() -> None:
    separate, fused = (Case(6, 4, 2, 32, torch.float32) for _ in range(2))
    _, expected = separate.separately()
    _, k = fused.at_once(keep_k=True)
    torch.testing.assert_close(k, expected, rtol=1e-5, atol=1e-6)


def test_an_empty_batch_launches_nothing() -> None:
    case = Case(2, 2, 1, 16, torch.float32)
    case.q, case.k, case.v = (x[:0] for x in (case.q, case.k, case.v))
    case.at_once(keep_k=False)


@pytest.mark.parametrize("shape", ["decodes", "a whole prompt"])
@pytest.mark.parametrize("rotary", ["all", "half"], ids=["every dimension turns", "half of them"])
def test_attention_gives_the_same_with_it_and_without(shape: str, rotary: str) -> None:
    """Where only some dimensions turn, the fused kernel is passed over."""
    lens = [1, 1, 1] if shape == "decodes" else [5]
    tokens, calls, outputs = sum(lens), [], []
    for is_fused in (True, False):
        case = Case(tokens, 4, 2, 16, torch.float32, seed=1)
        half = 8 if rotary == "all" else 4
        cos, sin = (x[:, :half].contiguous() for x in (case.rotation.cos, case.rotation.sin))
        norms = HeadNorms(TransformerOps().rms_norm, *_weights(case), EPS)
        positions = torch.tensor([0] * tokens if len(lens) > 1 else range(tokens), device=DEVICE)
        rotation = Rotation(TransformerOps().rope, positions, cos, sin, norms)

        def counted(*arguments: object) -> None:
            calls.append(arguments)
            norm_rope_store(*arguments)  # type: ignore[arg-type]

        store = RotateAndStore(LayerKernels(), norm_rope_store=counted if is_fused else None)
        attention = KernelAttention(case.pool, store, Flash(), Paged())
        tables = torch.arange(len(lens), dtype=torch.int32, device=DEVICE)[:, None]
        batch = AttentionBatch(
            lens, lens, torch.tensor([0, *lens]).cumsum(0).int().to(DEVICE),
            torch.tensor(lens, dtype=torch.int32, device=DEVICE), tables,
            positions + tables.flatten().repeat_interleave(torch.tensor(lens, device=DEVICE)) * BLOCK,
            positions,
        )  # fmt: skip
        attend = attend_through(attention, attention.plan(batch))
        outputs.append(attend(0, case.q, case.k, case.v, AttentionSpec(0.25), rotation=rotation))
    assert len(calls) == (rotary == "all")
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


def _weights(case: Case) -> tuple[Tensor, Tensor]:
    assert case.rotation.norms is not None
    return case.rotation.norms.q, case.rotation.norms.k


def test_a_learners_norm_runs_by_itself() -> None:
    backend = choose_backend(EngineConfig(backend="triton", mine="none"), DEVICE, [16])
    pool = Case(2, 2, 1, 16, torch.float32).pool
    assert backend.make_attention(pool)._store._norm_rope_store is norm_rope_store  # type: ignore[attr-defined]
    backend.parts = Parts(
        [Part(part.lab, YOURS if part.lab == "triton_ops" else part.owner, part.module, "")
         for part in backend.parts.table()]
    )  # fmt: skip
    assert backend.make_attention(pool)._store._norm_rope_store is None  # type: ignore[attr-defined]
