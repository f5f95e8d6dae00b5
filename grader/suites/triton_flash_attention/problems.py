"""Attention problems, how they are put to the part, and what it must answer.

The oracle is `grader.kit.kernels.attention`, in float64. Kernels run under `watching`: addresses are
checked, and what is never written is NaN.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, expect, note
from grader.kit.kernels import attention, attention_gradients, expect_near, random
from grader.kit.kernels import seen as visible
from grader.kit.triton_watch import Seen, watching
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
    """Random q, k and v: views of one tensor [n, t, heads + 2 kv_heads, d], as the engine has them."""
    fused = random(n, max(tq, tk), heads + 2 * kv_heads, dim, seed=seed, dtype=dtype)
    q, k, v = fused.split([heads, kv_heads, kv_heads], dim=2)
    return Problem(q[:, :tq], k[:, :tk], v[:, :tk], **options)


def forward(part: ModuleType, given: Problem, grades: str) -> tuple[Tensor, Tensor, Seen]:
    """(out, lse, what the kernels did) of the part, with the reference's helpers of other tasks."""
    note(f"# {given}")
    note("out, lse = FlashAttention().forward(q, k, v, ...)")
    with leaning_on_the_reference(part, grades), watching() as seen:
        answer = part.FlashAttention().forward(given.q, given.k, given.v, **given.options)
    out, lse = _tensors(answer, ("out", "lse"))
    return out, lse, seen


def backward(
    part: ModuleType, given: Problem, grad_out: Tensor, grades: str
) -> tuple[dict[str, Tensor], Seen]:
    """What task `grades` is about: {"dk": ..., "dv": ...} or {"dq": ...}.

    out and lse are the oracle's. The other half of the stub's backward is left out.
    """
    out, lse = given.exact()
    note(f"# {given}")
    note("dq, dk, dv = FlashAttention().backward(grad_out, q, k, v, out, lse, ...)")
    kernels = part.FlashAttention()
    other = "backward_queries" if grades == "10.5" else "backward_keys"
    if hasattr(kernels, other):
        nothing = None if other == "backward_queries" else (None, None)
        setattr(kernels, other, lambda *args, **kwargs: nothing)
    with leaning_on_the_reference(part, grades), watching() as seen:
        answer = kernels.backward(
            grad_out, given.q, given.k, given.v, out.to(given.dtype), lse.float(), **given.options
        )
    names = ("dq", "dk", "dv")
    expect(isinstance(answer, tuple) and len(answer) == 3, "backward does not return (dq, dk, dv)")
    wanted = names[1:] if grades == "10.5" else names[:1]
    return {name: x for name, x in zip(names, answer, strict=True) if name in wanted}, seen


def expect_forward(
    part: ModuleType, given: Problem, grades: str, what: str = "attention", why: str = ""
) -> Seen:
    """out within the dtype's error of float64, and lse -inf where nothing is seen. What lse is elsewhere
    is the affair of task 10.1."""
    out, lse, seen = forward(part, given, grades)
    exact_out, exact_lse = given.exact()
    expect_near(out, exact_out, given.dtype, f"out of {what}", why=why)
    if grades == "10.1":
        expect_lse(lse, exact_lse, what, why)
        return seen
    expect(lse.shape == exact_lse.shape, f"lse has shape {list(lse.shape)}, not [n, heads, tq]")
    wrong = (lse.isneginf() != exact_lse.isneginf()).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        right, got = (f"{x[place].item():.6g}" for x in (exact_lse, lse))
        raise Mismatch(f"lse of {what} at {list(place)}", right, got, why)
    return seen


def expect_lse(lse: Tensor, exact: Tensor, what: str = "attention", why: str = "") -> None:
    """Float32, and close; in other units it is said so."""
    finite = exact.isfinite()
    if (
        lse.shape == exact.shape
        and finite.any()
        and not torch.allclose(lse.double(), exact, 1e-3, 1e-3)
    ):
        for factor, cause in (
            (math.log2(math.e), "lse is a logarithm to base 2: multiply by ln 2 at the end"),
            (math.log(2), "lse was multiplied by ln 2 once too often"),
        ):
            if torch.allclose(lse[finite].double(), exact[finite] * factor, 1e-3, 1e-3):
                where = tuple(finite.nonzero()[0].tolist())
                raise Mismatch(
                    f"lse of {what} is in the wrong base", f"{exact[where].item():.6g}",
                    f"{lse[where].item():.6g}", f"{cause}. The contract wants natural logarithms.",
                )  # fmt: skip
    expect_near(lse, exact, F32, f"lse of {what}", why=why)


def expect_gradients(
    part: ModuleType, given: Problem, grades: str, what: str = "attention", why: str = ""
) -> Seen:
    """The gradients of this task within the dtype's error of float64."""
    grad_out = random(*given.q.shape, seed=77, dtype=given.dtype)
    got, seen = backward(part, given, grad_out, grades)
    exact = dict(zip(("dq", "dk", "dv"), given.exact_gradients(grad_out), strict=True))
    for name, gradient in got.items():
        # Rounded terms are summed, and out and lse were rounded: an error of the largest term.
        size = max(1.0, exact[name].abs().max().item()) if exact[name].numel() else 1.0
        expect_near(
            gradient / size, exact[name] / size, given.dtype, f"{name} of {what}", why=why, roundings=2
        )  # fmt: skip
    return seen


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
    points of one task. A part of another make has none of them, and is left as it is."""
    undo: list[Callable[[], None]] = []
    for module in vars(part).values():
        if not isinstance(module, ModuleType) or not module.__name__.startswith(
            part.__name__ + "."
        ):
            continue
        for name, task in HELPERS.items():
            if task != grades and hasattr(module, name):
                undo.append(_setter(module, name, getattr(module, name)))
                setattr(module, name, getattr(reference_tiles, name))
    try:
        yield
    finally:
        for step in undo:
            step()


def _setter(module: ModuleType, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(module, name, value)


def spans(out: Tensor) -> list[str]:
    """Which keys each query of head 0 saw, of a problem made by `counting`: "3..7", "none"."""
    found = []
    for row in out[0, :, 0, :2].double():
        mean, mean_square = row.tolist()
        if not row.isfinite().all():
            found.append("NaN")
        elif mean == 0:
            found.append("none")
        else:
            # The variance of c neighbouring numbers is (c * c - 1) / 12.
            count = round(math.sqrt(max(0.0, 12 * (mean_square - mean * mean) + 1)))
            first = round(mean - (count - 1) / 2) - 1
            found.append(f"{first}..{first + count - 1}")
    return found


def counting(tq: int, tk: int, **options: Any) -> Problem:
    """All scores are 0; the value of key i begins with i + 1 and its square: out tells what was seen."""
    numbers = torch.arange(1, tk + 1, dtype=F32)
    v = torch.zeros(1, tk, 1, 16)
    v[0, :, 0, 0], v[0, :, 0, 1] = numbers, numbers**2
    return Problem(torch.ones(1, tq, 1, 16), torch.zeros(1, tk, 1, 16), v, **options)


def expect_spans(part: ModuleType, given: Problem, grades: str, why: str) -> None:
    """Each query sees the keys that it must see, told as ranges."""
    out, _, _ = forward(part, given, grades)
    exact = given.exact()[0]
    expect(out.shape == exact.shape, f"out has shape {list(out.shape)}, not that of q")
    for query, (got, right) in enumerate(zip(spans(out), spans(exact), strict=True)):
        if got != right:
            position = given.k.shape[1] - given.q.shape[1] + query
            what = f"the keys that query {query}, at position {position}, sees"
            raise Mismatch(what, right, got, why)
    expect_near(out, exact, given.dtype, "the average of what is seen", why=why)


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
