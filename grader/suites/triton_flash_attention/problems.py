"""Attention problems, how they are put to the part, and what it must answer.

The oracle is `grader.kit.kernels.attention`, in float64. Kernels run under `watching`: addresses are
checked, the gaps of padded tensors among them, and what is never written is NaN.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import expect, note
from grader.kit.kernels import (
    attention,
    attention_gradients,
    padded,
    padded_apart,
    random,
)
from grader.kit.kernels import seen as visible
from grader.kit.triton_watch import Seen, watching
from grader.suites.triton_flash_attention.faults import told_faults
from grader.suites.triton_flash_attention.products import Products, observed
from solutions.triton_flash_attention import FlashAttention
from solutions.triton_flash_attention import backward_keys as reference_keys
from solutions.triton_flash_attention import tiles as reference_tiles
from yaie.core.batch import AttentionSpec

F16, F32, BF16 = torch.float16, torch.float32, torch.bfloat16
HELPERS = {
    "visible_keys": "10.2",
    "is_visible": "10.2",
    "key_head_of": "10.3",
    "is_kept": "10.4",
}
"""Functions of the stub that several kernels call, and the task that grades each."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the kernels of a call did."""

    seen: Seen
    products: Products

    @property
    def flops(self) -> int:
        return self.seen.flops


@dataclass
class Problem:
    """q [n, tq, heads, d]; k, v [n, tk, kv_heads, d]; the rest as in the contract."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float = 0.25
    causal: bool = False
    window: int | None = None
    block_mask: Tensor | None = None
    mask_block: int = 32

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"scale": self.scale, "causal": self.causal}
        if self.window is not None:
            options["window"] = self.window
        if self.block_mask is not None:
            options |= {"block_mask": self.block_mask, "mask_block": self.mask_block}
        return options

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    def seen(self) -> Tensor:
        """[tq, tk] bool."""
        return visible(
            self.q.shape[1], self.k.shape[1], causal=self.causal, window=self.window,
            block_mask=self.block_mask, mask_block=self.mask_block,
        )  # fmt: skip

    def exact(self) -> tuple[Tensor, Tensor]:
        """(out, lse) in float64."""
        if self.k.shape[1] == 0:
            n, tq, heads, _ = self.q.shape
            return torch.zeros(self.q.shape).double(), torch.full(
                (n, heads, tq), -math.inf
            ).double()
        spec = AttentionSpec(self.scale, window=self.window)
        return attention(
            self.q, self.k, self.v, spec, causal=self.causal, block_mask=self.block_mask,
            mask_block=self.mask_block,
        )  # fmt: skip

    def exact_gradients(self, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(dq, dk, dv) in float64."""
        spec = AttentionSpec(self.scale, window=self.window)
        return attention_gradients(
            grad_out, self.q, self.k, self.v, spec, causal=self.causal, block_mask=self.block_mask,
            mask_block=self.mask_block,
        )  # fmt: skip

    def __str__(self) -> str:
        q, k = list(self.q.shape), list(self.k.shape)
        told = f"q {q}, k and v {k}, {str(self.dtype).removeprefix('torch.')}, scale={self.scale}"
        told += ", causal" if self.causal else ""
        told += f", window={self.window}" if self.window is not None else ""
        if self.block_mask is not None:
            told += f", mask_block={self.mask_block}, block_mask={self.block_mask.int().tolist()}"
        return told


def problem(
    tq: int,
    tk: int,
    *,
    heads: int = 1,
    kv_heads: int = 1,
    dim: int = 16,
    n: int = 1,
    dtype: torch.dtype = F32,
    seed: int = 0,
    **options: Any,
) -> Problem:
    """Random q, k and v, each with gaps and strides of its own: views, as the engine has them."""
    lengths = {"q": (tq, heads), "k": (tk, kv_heads), "v": (tk, kv_heads)}
    q, k, v = padded_apart(
        *(
            random(n, *lengths[name], dim, seed=3 * seed + turn, dtype=dtype)
            for turn, name in enumerate("qkv")
        )
    )
    return Problem(q, k, v, **options)


def both_masks() -> Problem:
    """40 causal queries over 48 keys under a block mask. Of the first 16 queries some see no key of the
    first tile that is kept for them."""
    kept = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)
    return problem(40, 48, causal=True, block_mask=kept, mask_block=16)


def forward(
    part: ModuleType, given: Problem, grades: str, *, exact: bool = False, record: bool = False
) -> tuple[Tensor, Tensor, Work]:
    """(out, lse, what the kernels did) of the part, with the reference's helpers of other tasks.

    exact: see `observed`. record: see `watching`.
    """
    note(f"# {given}")
    note("out, lse = FlashAttention().forward(q, k, v, ...)")
    with (
        told_faults(grades, given) as watched,
        leaning_on_the_reference(part, grades),
        watching(record=record) as seen,
        observed(exact=exact) as products,
    ):
        watched.append(seen)
        answer = part.FlashAttention().forward(given.q, given.k, given.v, **given.options)
    out, lse = _tensors(answer, ("out", "lse"))
    return out, lse, Work(seen, products)


def backward(
    part: ModuleType,
    given: Problem,
    grad_out: Tensor,
    grades: str,
    *,
    exact: bool = False,
    record: bool = False,
) -> tuple[dict[str, Tensor], Work]:
    """What task `grades` is about: {"dk": ..., "dv": ...} or {"dq": ...}.

    out and lse are the oracle's. The other half of the stub's backward is left out.
    """
    out, lse = given.exact()
    out, grad_out = padded(out.to(given.dtype), 7), padded(grad_out, 9)
    note(f"# {given}")
    note("dq, dk, dv = FlashAttention().backward(grad_out, q, k, v, out, lse, ...)")
    made = part.FlashAttention
    other = "backward_queries" if grades == "10.5" else "backward_keys"
    theirs, ours = getattr(made, other, backward), getattr(FlashAttention, other)
    if [*inspect.signature(theirs).parameters] == [*inspect.signature(ours).parameters]:
        nothing = None if other == "backward_queries" else (None, None)
        made = type(made.__name__, (made,), {other: lambda *args, **kwargs: nothing})
    kernels = made()
    with (
        told_faults(grades, given) as watched,
        leaning_on_the_reference(part, grades),
        watching(record=record) as seen,
        observed(exact=exact) as products,
    ):
        watched.append(seen)
        answer = kernels.backward(
            grad_out, given.q, given.k, given.v, out, lse.float(), **given.options
        )
    names = ("dq", "dk", "dv")
    expect(isinstance(answer, tuple) and len(answer) == 3, "backward does not return (dq, dk, dv)")
    wanted = names[1:] if grades == "10.5" else names[:1]
    found = {name: x for name, x in zip(names, answer, strict=True) if name in wanted}
    return found, Work(seen, products)


def _tensors(answer: Any, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    good = isinstance(answer, tuple) and len(answer) == 2
    expect(
        good and all(isinstance(x, Tensor) for x in answer),
        f"forward does not return ({', '.join(names)})",
    )
    return answer[0], answer[1]


@contextmanager
def leaning_on_the_reference(part: ModuleType, grades: str) -> Iterator[None]:
    """While it lasts, the stub's helpers of other tasks are the reference's, so that a mistake costs the
    points of one task. A part of another make has none of them, or others of those names, and is left as
    it is."""
    undo: list[Callable[[], None]] = []
    for module in vars(part).values():
        if not isinstance(module, ModuleType) or not module.__name__.startswith(
            part.__name__ + "."
        ):
            continue
        for name, task in HELPERS.items():
            if task != grades and is_helper(module, name):
                undo.append(_setter(module, name, getattr(module, name)))
                setattr(module, name, getattr(reference_tiles, name))
    try:
        yield
    finally:
        for step in undo:
            step()


def is_helper(module: ModuleType, name: str) -> bool:
    """Whether a module of the part has the stub's function of this name, by its parameters."""
    ours = (reference_tiles, reference_keys)
    helper = next(getattr(module, name) for module in ours if hasattr(module, name))
    return _parameters(getattr(module, name, None)) == _parameters(helper)


def _parameters(function: Any) -> list[str] | None:
    return list(inspect.signature(function.fn).parameters) if hasattr(function, "fn") else None


def _setter(module: ModuleType, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(module, name, value)


def without_masks(given: Problem) -> Problem:
    """The same shapes, every query seeing every key: what a share of the work is a share of."""
    return replace(given, causal=False, window=None, block_mask=None)


SIZES = st.sampled_from([1, 2, 15, 16, 17, 31, 33, 50])


@st.composite
def problems(
    draw: st.DrawFn, *, causal: bool = False, group: bool = False, mask: bool = False
) -> Problem:
    """Any shape, any strides; causal, grouped (then of one whole tile) and masked as asked."""
    kv_heads = draw(st.sampled_from([1, 2]))
    made = problem(
        draw(st.sampled_from([1, 5, 16]) if group else SIZES),
        16 if group else draw(SIZES),
        heads=kv_heads * (draw(st.sampled_from([2, 3])) if group else 1),
        kv_heads=kv_heads,
        dim=draw(st.sampled_from([16, 24, 40])),
        n=draw(st.sampled_from([1, 1, 2])),
        dtype=draw(st.sampled_from([F32, F32, F32, F16])),
        seed=draw(st.integers(0, 99)),
        scale=draw(st.sampled_from([0.25, 1.0])),
        causal=causal,
    )
    if causal:
        made.window = draw(st.sampled_from([None, 1, 3, 16, 20]))
    if mask:
        rows, columns = (-(-x.shape[1] // 16) for x in (made.q, made.k))
        kept = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
        made = replace(made, block_mask=torch.tensor(kept).view(rows, columns), mask_block=16)
    return made
