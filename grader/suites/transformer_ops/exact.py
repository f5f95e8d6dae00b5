"""The operations as their definitions read, in float64, and what a result may differ from them.

`transformers` says the same in its Llama model: the project's own tests hold the reference, which must
pass here, against that model's modules. Importing them takes longer than grading the whole lab.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close, expect_equal, note, watch
from grader.kit.layout import Reading, explain_strides, padded_apart
from grader.kit.mistakes import DIGITS, lost_digits, rounded_input, told_by
from grader.kit.script import show
from grader.suites.transformer_ops.misattended import Attention
from grader.suites.transformer_ops.rounded import told_of_scores
from solutions.transformer_ops import TransformerOps
from solutions.transformer_ops.naive import naive_attention
from yaie.core.batch import AttentionSpec

INF = math.inf
WIDE = "The math is done in float32; only the result is rounded to the input's dtype."

STRIDES = (
    "A slice of a larger tensor has gaps between its rows. Indexing, chunk, reshape and arithmetic "
    "follow its strides; as_strided, and what supposes that rows lie side by side, do not."
)

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-7}
"""Relative, and absolute for values below 1: a few roundings of the dtype."""


def random(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers rounded to multiples of 1/8, so that a report can show them."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 8).round() / 8


def ops_of(part: ModuleType) -> Any:
    """The operations under test; their calls are written down."""
    return watch(part.TransformerOps(), "ops")


def with_reference_norm(part: ModuleType) -> Any:
    """The operations under test on the reference's rms_norm, which has a task of its own."""

    class OnReferenceNorm(part.TransformerOps):  # type: ignore[name-defined]
        def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
            return TransformerOps().rms_norm(x, weight, eps)

    return watch(OnReferenceNorm(), "ops")


def expect_near(
    got: Any,
    exact: Tensor,
    dtype: torch.dtype,
    what: str,
    *,
    why: str = "",
    reading: Reading | None = None,
    inputs: Reading | None = None,
    gives: Callable[[], Mapping[str, Tensor]] | None = None,
) -> None:
    """`got` is of this dtype and has the values of `exact`, up to a few of its roundings.

    why: said of wrong values where nothing else is known. gives: what mistakes would give, by what is
    said of each. reading: where values differ because an input was read with wrong strides, the message
    says so. inputs: the same for an input that was rounded; those of `reading`, if not given.
    """
    expect_tensor(got, dtype, what, why)
    tolerance = TOLERANCE[dtype]
    try:
        expect_close(got, exact.double(), what, rtol=tolerance, atol=tolerance, why=why)
    except Mismatch as mismatch:
        if got.shape != exact.shape:
            raise
        inputs = inputs or reading
        if told := told_by(got, gives() if gives else {}, exact):
            mismatch.why = told
        elif told := lost_digits(got, exact):
            mismatch.problem, mismatch.claim = f"{mismatch.problem}, {told}", WIDE
            rounded = rounded_input(got, inputs, tolerance=tolerance) if inputs else ""
            mismatch.why = rounded or DIGITS
        elif reading and (told := explain_strides(got, exact, reading, tolerance=tolerance)):
            problem = f"{what}: {told}"
            raise Mismatch(problem, mismatch.expected, mismatch.got, STRIDES) from None
        raise


def sliced(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same values as views, each with gaps of its own: numbers like theirs, so that one that is read
    by mistake gives a number that tells where it came from, and not NaN all over."""
    views = padded_apart(*tensors, dims=(0,) if tensors[0].ndim == 1 else None)
    for number, view in enumerate(views):
        memory = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
        memory.copy_(torch.where(memory.isnan(), random(len(memory), seed=50 + number), memory))
    return views


def expect_unchanged(why: str, **tensors: tuple[Tensor, Tensor]) -> None:
    """Tensors that outlive the call are as they were: name=(now, before)."""
    for name, (now, before) in tensors.items():
        expect_close(now, before, f"{name} after the call", rtol=0, atol=0, why=why)


def expect_tensor(got: Any, dtype: torch.dtype, what: str, why: str = "") -> None:
    expect(isinstance(got, Tensor), f"{what}: {type(got).__name__} instead of a tensor", why=why)
    expect_equal(got.dtype, dtype, f"the dtype of {what}", why=why or WIDE)


def expect_pair(got: Any, what: str) -> tuple[Any, Any]:
    expect(isinstance(got, tuple) and len(got) == 2, f"{what} does not give two tensors")
    return got


def exact_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.double()
    return wide / (wide.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight.double()


def exact_silu_mul(x: Tensor) -> Tensor:
    gate, up = x.double().chunk(2, dim=-1)
    return gate / (1 + (-gate).exp()) * up


def rotary_tables(positions: int, half: int) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, half] of the usual frequencies."""
    angles = torch.outer(torch.arange(positions).float(), 100.0 ** (-torch.arange(half) / half))
    return angles.cos(), angles.sin()


def exact_rope(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Number by number: each pair (x[i], x[i + half]) is turned by the angle of its position."""
    out, half = x.double().clone(), cos.shape[1]
    for token, position in enumerate(positions.tolist()):
        for i in range(half):
            c, s = float(cos[position, i]), float(sin[position, i])
            first, second = x[token, :, i].double(), x[token, :, i + half].double()
            out[token, :, i] = first * c - second * s
            out[token, :, i + half] = second * c + first * s
    return out


def seen_by(kv_len: int, tq: int, tk: int, window: int | None) -> list[list[int]]:
    """For each query of a row the keys that it sees."""
    rows = []
    for position in range(kv_len - tq, kv_len):
        first = 0 if window is None else max(0, position - window + 1)
        rows.append([key for key in range(tk) if first <= key <= position])
    return rows


@st.composite
def masks(draw: st.DrawFn) -> tuple[list[int], int, int, int | None]:
    """(kv_lens, tq, tk, window)."""
    tq = draw(st.integers(1, 4))
    kv_lens = draw(st.lists(st.integers(tq, tq + 6), min_size=1, max_size=3))
    tk = max(kv_lens) + draw(st.integers(0, 2))
    return kv_lens, tq, tk, draw(st.none() | st.integers(1, 6))


def attend(
    part: ModuleType, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: list[int]
) -> Any:
    """The attention under test, behind a mask of the reference's."""
    lens = torch.tensor(kv_lens)
    mask = TransformerOps().causal_mask(lens, q.shape[1], k.shape[1], spec.window, q.dtype)
    given = {name: getattr(spec, name) for name in ("scale", "window", "softcap", "sinks")}
    shown = [f"{name}={show(value)}" for name, value in given.items() if value is not None]
    note(f"{show(spec)} = AttentionSpec({', '.join(shown)})")
    return ops_of(part).attention(q.clone(), k.clone(), v.clone(), mask, spec)


def expect_attention(
    part: ModuleType,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    kv_lens: list[int],
    *,
    what: str = "attention",
    why: str = "",
) -> None:
    """The attention under test is `naive_attention` in float64."""
    got = attend(part, q, k, v, spec, kv_lens)
    expect_attended(got, q, k, v, spec, kv_lens, what=what, why=why)


def expect_attended(
    got: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    kv_lens: list[int],
    *,
    what: str,
    why: str = "",
) -> None:
    """This is `naive_attention` in float64. why: said where no mistake is known that gives it."""
    reading = _reading(q, k, v, spec, kv_lens)
    expect_near(
        got,
        reading.compute(**reading.inputs),
        torch.float32,
        what,
        why=why,
        inputs=reading,
        gives=Attention(q, k, v, spec, kv_lens).mistaken,
    )


def _reading(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: list[int]) -> Reading:
    """How attention follows from its tensors, the sinks among them."""

    def compute(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
        here = replace(spec, sinks=sinks)
        return naive_attention(q.double(), k, v, here, torch.tensor(kv_lens))

    sinks = {} if spec.sinks is None else {"sinks": spec.sinks}
    return Reading(compute, {"q": q, "k": k, "v": v, **sinks})


MOST_ERROR = 0.005
"""Relative, of attention in bfloat16: its last rounding alone gives a third of it."""


def expect_accurate(part: ModuleType, spec: AttentionSpec, *, why: str) -> None:
    """In bfloat16 the error of attention is that of rounding its result, or little more."""
    q, k, v = (random(2, n, heads, 32, seed=n + heads) for n, heads in ((24, 4), (64, 2), (64, 2)))
    q, k, v = (x.bfloat16() for x in (q * 3, k * 3, v))
    lens = torch.tensor([64, 40])
    got = attend(part, q, k, v, spec, lens.tolist())
    expect_tensor(got, torch.bfloat16, "attention in bfloat16")
    exact = naive_attention(q.double(), k.double(), v.double(), spec, lens)
    expect_equal(list(got.shape), list(exact.shape), "the shape of attention")
    error = float((got.double() - exact).norm() / exact.norm())
    if not error < MOST_ERROR:
        mask = TransformerOps().causal_mask(lens, 24, 64, spec.window, q.dtype)
        column = int((got.double() - exact)[0, 0].abs().flatten().argmax())
        right, value = exact[0, 0].flatten()[column], got[0, 0].flatten()[column]
        raise Mismatch(
            f"the relative error in bfloat16 is {error:.4f}, not below {MOST_ERROR}; the worst value of "
            "the first query is off by more than the last rounding",
            f"{float(right):.5g}", f"{float(value):.5g}",
            f"{told_of_scores(got, q, k, v, mask, spec, exact)} {why}".strip(),
        )  # fmt: skip
