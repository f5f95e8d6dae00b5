"""How `yaie bench kernels` calls FlashInfer and FlashAttention-3, and what it says where they lack.

Neither runs without a GPU. Stand-ins with their signatures compute what the arguments say, in float64.
"""

import sys
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from yaie.bench.kernels import flash, libraries, paged, suite
from yaie.bench.kernels.case import Problem
from yaie.parts import load_parts

PARTS = load_parts("none")


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    """q [t, heads, d] on k, v [s, kv_heads, d]; the last query sees all keys."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * scale
    if causal:
        first = len(k) - len(q)
        later = torch.arange(len(k))[None] > first + torch.arange(len(q))[:, None]
        scores = scores.masked_fill(later, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(q.dtype)


def over_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: list[Tensor],
    lens: Any,
    starts: Any,
    scale: float,
    causal: bool,
) -> Tensor:
    """Each sequence's keys, gathered by its table."""
    rows = []
    for i, table in enumerate(tables):
        keys, values = (x[table.long()].flatten(0, 1)[: int(lens[i])] for x in (k, v))
        rows.append(attend(q[int(starts[i]) : int(starts[i + 1])], keys, values, scale, causal))
    return torch.cat(rows)


class Wrapper:
    """FlashInfer's BatchPrefillWithPagedKVCacheWrapper, and the one of decodes."""

    decodes = False

    def __init__(
        self, workspace: Tensor, layout: str, *, backend: str, use_tensor_cores: bool = True
    ) -> None:
        assert workspace.dtype == torch.uint8
        assert layout == "NHD"
        assert backend in ("fa2", "fa3")

    def plan(
        self, *places: Any, sm_scale: float, causal: bool = False, **kinds: torch.dtype
    ) -> None:
        if self.decodes:
            places = (torch.arange(len(places[0])), *places)
        self.starts, ends, indices, last, heads, kv_heads, dim, block = places
        self.tables = [indices[a:b] for a, b in pairwise(ends)]
        self.lens = [(len(t) - 1) * block + int(n) for t, n in zip(self.tables, last, strict=True)]
        self.scale, self.causal, self.shape = (
            sm_scale,
            causal or self.decodes,
            (heads, kv_heads, dim, block),
        )

    def run(self, q: Tensor, pool: tuple[Tensor, Tensor]) -> Tensor:
        heads, kv_heads, dim, block = self.shape
        assert q.shape[1:] == (heads, dim)
        assert pool[0].shape[1:] == (block, kv_heads, dim)
        return over_blocks(q, *pool, self.tables, self.lens, self.starts, self.scale, self.causal)


class Decode(Wrapper):
    decodes = True


def single(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, sm_scale: float, backend: str
) -> Tensor:
    assert backend in ("fa2", "fa3")
    return attend(q, k, v, sm_scale, causal)


def metadata(
    batch: int,
    new: int,
    length: int,
    heads: int,
    kv_heads: int,
    dim: int,
    lens: Tensor,
    **more: Any,
) -> tuple[int, ...]:
    assert more["page_size"] == paged.BLOCK
    assert more["causal"]
    return (batch, new, length, heads, kv_heads, dim, int(lens.sum()))


def varlen(
    q: Tensor, k: Tensor, v: Tensor, max_q: int, starts: Tensor, max_k: int, cu_seqlens_k: Any = None,
    seqused_k: Any = None, *, softmax_scale: float, causal: bool, fa_version: int,
    block_table: Any = None, scheduler_metadata: Any = None,
) -> Tensor:  # fmt: skip
    """As vLLM's flash_attn_varlen_func."""
    assert fa_version == 3
    if block_table is None:
        return attend(q, k, v, softmax_scale, causal)
    assert scheduler_metadata[:3] == (len(starts) - 1, max_q, max_k)
    return over_blocks(q, k, v, list(block_table), seqused_k, starts, softmax_scale, causal)


def with_kvcache(
    q: Tensor, k: Tensor, v: Tensor, *, cache_seqlens: Tensor, page_table: Tensor, cu_seqlens_q: Tensor,
    max_seqlen_q: int, softmax_scale: float, causal: bool, scheduler_metadata: Any,
) -> Tensor:  # fmt: skip
    """As the authors' flash_attn_with_kvcache."""
    assert scheduler_metadata[1] == max_seqlen_q
    return over_blocks(
        q, k, v, list(page_table), cache_seqlens, cu_seqlens_q, softmax_scale, causal
    )


def whole(
    q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, causal: bool
) -> tuple[Tensor, None]:
    return attend(q[0], k[0], v[0], softmax_scale, causal)[None], None


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    package = ""
    for piece in name.split("."):
        package = f"{package}.{piece}".lstrip(".")
        module = ModuleType(package)
        module.__spec__ = ModuleSpec(package, None, is_package=True)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, package, module)
    for key, value in {"__version__": "1.2", **contents}.items():
        setattr(sys.modules[name], key, value)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "copies_beyond_l2", lambda _: 1)
    for name, value in (("HEADS", 4), ("KV_HEADS", 2), ("CHECKED", 16)):
        monkeypatch.setattr(flash, name, value)
    for name in ("flashinfer", *libraries.FA3_HOMES, "vllm"):
        monkeypatch.setitem(sys.modules, name, None)


def problems() -> list[Problem]:
    return [
        flash._forward(64, PARTS),
        paged._decode(3, 40, 4, 2, PARTS),
        paged._prefill(2, 16, 24, 4, 2, PARTS),
    ]


@pytest.mark.parametrize("name", libraries.FLASHINFER)
def test_flashinfer_is_given_the_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install(
        monkeypatch,
        "flashinfer",
        single_prefill_with_kv_cache=single,
        BatchDecodeWithPagedKVCacheWrapper=Decode,
        BatchPrefillWithPagedKVCacheWrapper=Wrapper,
    )
    assert libraries.lacking(name) is None
    assert libraries.versions() == {"flashinfer": "1.2"}
    for problem in problems():
        assert suite._error(problem, problem.runs[name]()) <= problem.tolerance


@pytest.mark.parametrize("home", libraries.FA3_HOMES)
def test_flash_attention_3_is_given_the_case(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    install(
        monkeypatch,
        home,
        get_scheduler_metadata=metadata,
        flash_attn_varlen_func=varlen,
        flash_attn_func=whole,
        flash_attn_with_kvcache=with_kvcache,
    )
    assert libraries.fa3_home() == home
    for problem in problems():
        assert suite._error(problem, problem.runs[libraries.FA3]()) <= problem.tolerance


def test_what_is_not_installed_is_named_and_not_tried() -> None:
    reasons = suite.absent()
    assert set(reasons) == {*libraries.FLASHINFER, libraries.FA3}
    assert "flashinfer is not installed" in reasons["flashinfer fa2"]
    assert "vllm.vllm_flash_attn" in reasons[libraries.FA3]
    assert libraries.versions() == {}
    assert libraries.lacking("triton") is None
