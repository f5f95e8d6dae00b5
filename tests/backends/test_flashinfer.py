"""FlashInfer as a backend: when it is chosen, what it refuses, and what a stand-in for it is given."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.transformer_ops import TransformerOps
from tests.backends.paged_batches import (
    PLAIN,
    SHAPES,
    SPECS,
    Layers,
    assert_attends,
    batch_of,
    naive,
)
from tests.backends.plain_kernels import Store
from yaie.backends import choose_backend, decide, flashinfer, triton
from yaie.backends.attention import RotateAndStore
from yaie.backends.flashinfer import FlashInferAttention, FlashInferBackend, pages_of
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec, Rotation
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, KernelError
from yaie.worker.layout import attend_through

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
# --- which backend, and what it refuses ---


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the library and Triton were here, on a machine with NVIDIA's GPUs."""
    monkeypatch.setattr(flashinfer, "find_spec", lambda name: object())
    monkeypatch.setattr(flashinfer, "has_triton", lambda: True)
    monkeypatch.setattr(triton, "has_triton", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)


def chosen(head_dims: tuple[int, ...] = (64,), **settings: Any) -> Any:
    return decide(EngineConfig(**settings), GPU, head_dims)


@pytest.mark.usefixtures("installed")
def test_it_is_off_until_it_is_named() -> None:
    assert chosen().kind.name == "triton"
    choice = chosen(backend="flashinfer", mine="none")
    assert choice.kind is FlashInferBackend
    assert choice.roles["attention"] == ()
    assert "triton_ops" in choice.labs
    assert "triton_sampling" in choice.labs
    assert "triton_paged_attention" not in choice.labs
    assert "FlashInfer" in choice.note


@pytest.mark.usefixtures("installed")
def test_a_part_that_is_named_attends_in_its_place() -> None:
    assert chosen(backend="flashinfer", mine="radix_attention").roles["attention"] == (
        "radix_attention",
    )
    with pytest.raises(ConfigError, match="add backend 'triton'"):
        chosen(backend="flashinfer", mine="triton_paged_attention")


def test_a_cpu_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"needs an NVIDIA GPU.*leave the backend to auto"
    ) as error:
        decide(EngineConfig(backend="flashinfer"), CPU, [64])
    assert error.value.param == "backend"


@pytest.mark.usefixtures("installed")
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(ConfigError, match="needs an NVIDIA GPU"):
        chosen(backend="flashinfer")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(flashinfer, "has_triton", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'yaie\[gpu\]'"):
        chosen(backend="flashinfer")
    monkeypatch.setattr(flashinfer, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install flashinfer-python"):
        chosen(backend="flashinfer")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("sizes", "refused"), [((32,), 32), ((64, 96, 128), 96), ((512, 64), 512)])
def test_heads_that_it_has_no_kernel_for_are_refused(sizes: tuple[int, ...], refused: int) -> None:
    """A size between two that it has is one that it lacks."""
    with pytest.raises(ConfigError, match=f"{refused} dimensions .* take 64, 128 or 256"):
        chosen(sizes, backend="flashinfer")
    assert chosen((64, 128, 256), backend="flashinfer").kind is FlashInferBackend


@pytest.fixture
def backend(installed: None) -> FlashInferBackend:
    made = choose_backend(EngineConfig(backend="flashinfer", mine="none"), GPU, [64])
    assert isinstance(made, FlashInferBackend)
    return made


def test_a_pool_that_it_cannot_read_is_refused(backend: FlashInferBackend) -> None:
    with pytest.raises(ConfigError, match="choose a dtype from float16, bfloat16") as error:
        backend.make_pool([KVLayerSpec(1, 64)], 2, 4, torch.float32, CPU, 0)
    assert error.value.param == "dtype"
    with pytest.raises(ConfigError, match="96 dimensions"):
        backend.make_pool([KVLayerSpec(1, 96), KVLayerSpec(1, 64)], 2, 4, torch.float16, CPU, 0)
    assert backend.make_pool([KVLayerSpec(1, 64)], 2, 4, torch.float16, CPU, 0).block_size == 4


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("settings", [{"kv_dtype": "int8"}])
def test_settings_that_do_not_go_with_it_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'flashinfer'"):
        chosen(backend="flashinfer", **settings)


def test_steps_are_not_recorded_and_the_reason_is_told(backend: FlashInferBackend) -> None:
    assert not backend.may_be_captured
    assert "planned on the host" in backend.why_not_captured


def test_a_library_that_does_not_load_is_told(
    backend: FlashInferBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)  # importing it raises ImportError
    with pytest.raises(KernelError, match="FlashInfer cannot be loaded"):
        backend.prepare(GPU)


# --- what the library is given ---


@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("lens", [[1], [16, 17, 15], [4, 3, 64, 1, 8]])
def test_pages_are_the_blocks_of_each_sequence_in_order(lens: list[int], block: int) -> None:
    generator = torch.Generator().manual_seed(1)
    width = -(-max(lens) // block) + 2  # tables may be wider than any sequence
    tables = torch.randint(1000, (len(lens), width), generator=generator, dtype=torch.int32)
    pages = pages_of(tables, lens, block)
    starts, blocks, last = [0], [], []
    for row, length in zip(tables.tolist(), lens, strict=True):
        used = [row[at // block] for at in range(0, length, block)]
        blocks += used
        starts.append(len(blocks))
        last.append(length - block * (len(used) - 1))
    assert [part.tolist() for part in pages] == [starts, blocks, last]
    assert all(part.dtype == torch.int32 for part in pages)


class Wrapper:
    """Stands for a wrapper of FlashInfer 0.7.2, of the arguments that are given here.

    plans: how often it was planned.
    """

    def __init__(
        self, workspace: Tensor, kv_layout: str, use_tensor_cores: bool | None = None
    ) -> None:
        assert (workspace.dtype, kv_layout) == (torch.uint8, "NHD")
        self.workspace = workspace
        self.plans = 0

    def _keep(
        self, queries: Tensor, pages: tuple[Tensor, Tensor, Tensor], shape: tuple[int, ...],
        scale: float, window_left: int, cap: float | None, dtypes: set[torch.dtype],
    ) -> None:  # fmt: skip
        starts, blocks, last = pages
        assert all(x.dtype == torch.int32 for x in (queries, *pages))
        assert not any(x.is_cuda for x in (queries, starts, last))  # or planning waits for the GPU
        counts = starts.diff()
        width = int(counts.max())
        tables = torch.zeros(len(last), width, dtype=torch.int32)
        for row, (first, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=False)):
            tables[row, :count] = blocks[first : first + count]
        lens = ((counts - 1) * shape[3] + last).tolist()
        nothing = torch.zeros(0, dtype=torch.int64)
        self.batch = AttentionBatch(
            queries.diff().tolist(), lens, queries, torch.tensor(lens), tables, nothing, nothing
        )
        self.spec = AttentionSpec(scale, None if window_left < 0 else window_left + 1, cap)
        self.shape, self.dtypes = shape, dtypes
        self.plans += 1

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        keys, values = paged_kv_cache
        assert (q.shape[1], keys.shape[2], q.shape[2], keys.shape[1]) == self.shape
        assert self.dtypes == {q.dtype, keys.dtype}
        return naive(q, keys, values, self.batch, self.spec).to(q.dtype)


class Decode(Wrapper):
    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, *, sm_scale: float, window_left: int,
        logits_soft_cap: float | None, q_data_type: torch.dtype, kv_data_type: torch.dtype,
    ) -> None:  # fmt: skip
        queries = torch.arange(len(last_page_len) + 1, dtype=torch.int32)
        shape = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._keep(queries, (indptr, indices, last_page_len), shape, sm_scale, window_left,
                   logits_soft_cap, {q_data_type, kv_data_type})  # fmt: skip


class Prefill(Wrapper):
    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, *, causal: bool, sm_scale: float, window_left: int,
        logits_soft_cap: float | None, q_data_type: torch.dtype, kv_data_type: torch.dtype,
    ) -> None:  # fmt: skip
        assert causal
        pages = (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        shape = (num_qo_heads, num_kv_heads, head_dim_qk, page_size)
        self._keep(qo_indptr, pages, shape, sm_scale, window_left, logits_soft_cap,
                   {q_data_type, kv_data_type})  # fmt: skip


@pytest.fixture
def wrappers(monkeypatch: pytest.MonkeyPatch) -> list[Wrapper]:
    """Those that were made of the stand-in."""
    made: list[Wrapper] = []

    def maker(kind: type[Wrapper]) -> Any:
        def make(*arguments: Any, **named: Any) -> Wrapper:
            made.append(kind(*arguments, **named))
            return made[-1]

        return make

    library: Any = ModuleType("flashinfer")
    library.BatchDecodeWithPagedKVCacheWrapper = maker(Decode)
    library.BatchPrefillWithPagedKVCacheWrapper = maker(Prefill)
    monkeypatch.setitem(sys.modules, "flashinfer", library)
    monkeypatch.setattr(flashinfer, "WORKSPACE", 1024)
    return made


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_any_batch_comes_out_as_it_should(
    shapes: list[tuple[int, int]], spec: AttentionSpec, wrappers: list[Wrapper]
) -> None:
    batch = batch_of(shapes, 16, CPU)
    layers = Layers(batch, 16, 4, 2, 8)
    attention = FlashInferAttention(layers.pool, RotateAndStore(Store()))
    assert_attends(attention, layers, batch, spec, 4e-3)
    has_decodes, has_more = shapes[0][0] == 1, shapes != SHAPES["decodes"]
    assert [type(one) for one in wrappers] == [Decode] * has_decodes + [Prefill] * has_more


def test_a_step_is_planned_once_for_all_layers_of_a_kind(wrappers: list[Wrapper]) -> None:
    batch = batch_of(SHAPES["all of them"], 4, CPU)
    layers = Layers(batch, 4, 4, 2, 8, layers=4)
    attention = FlashInferAttention(layers.pool, RotateAndStore(Store()))
    kinds = [SPECS["plain"], SPECS["window"]]
    for step in (1, 2):
        plan = attention.plan(batch)
        for layer in range(4):
            spec = kinds[layer % 2]
            out = attention.run(layer, layers.q, layers.k, layers.v, spec, plan)
            expected = naive(layers.q, *layers.pool.blocks(layer), batch, spec)
            torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)
        assert [wrapper.plans for wrapper in wrappers] == [step] * 4
    assert len({wrapper.workspace.data_ptr() for wrapper in wrappers}) == 1


def test_the_plan_of_another_step_is_not_taken_for_ones_own(wrappers: list[Wrapper]) -> None:
    """Two steps whose layers are computed in turns, as no worker does yet."""
    batch, other = (batch_of(SHAPES[name], 4, CPU) for name in ("decodes", "all of them"))
    layers, others = (Layers(one, 4, 4, 2, 8) for one in (batch, other))
    others.pool = layers.pool = max((layers.pool, others.pool), key=lambda pool: pool.num_blocks)
    attention = FlashInferAttention(layers.pool, RotateAndStore(Store()))
    plan, later = attention.plan(batch), attention.plan(other)
    attention.run(0, others.q, others.k, others.v, PLAIN, later)
    out = attention.run(0, layers.q, layers.k, layers.v, PLAIN, plan)
    expected = naive(layers.q, *layers.pool.blocks(0), batch, PLAIN)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


def test_the_rotation_is_applied_before_keys_are_stored(wrappers: list[Wrapper]) -> None:
    batch = batch_of(SHAPES["all of them"], 4, CPU)
    layers, turned = (Layers(batch, 4, 4, 2, 8, torch.float32) for _ in range(2))
    angles = torch.outer(torch.arange(99.0), torch.tensor([1.0, 0.3, 0.1, 0.02]))
    rotation = Rotation(TransformerOps().rope, batch.positions, angles.cos(), angles.sin())
    attention = FlashInferAttention(layers.pool, RotateAndStore(Store()))
    attend = attend_through(attention, attention.plan(batch))
    out = attend(0, layers.q, layers.k, layers.v, PLAIN, rotation=rotation)
    q, k = rotation.apply(turned.q, turned.k)
    Store().store_kv(k, turned.v, *turned.pool.blocks(0), batch.slot_mapping)
    expected = naive(q, *turned.pool.blocks(0), batch, PLAIN)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)


def test_sinks_are_refused(wrappers: list[Wrapper]) -> None:
    batch = batch_of(SHAPES["decodes"], 4, CPU)
    layers = Layers(batch, 4, 4, 2, 8)
    attention = FlashInferAttention(layers.pool, RotateAndStore(Store()))
    with pytest.raises(ConfigError, match="sinks, which backend 'flashinfer' does not know"):
        assert_attends(attention, layers, batch, AttentionSpec(0.3, sinks=torch.zeros(4)), 0)
    assert wrappers == []
