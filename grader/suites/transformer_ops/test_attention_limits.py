"""Tasks 2.6 and 2.7: tensors with gaps in memory, and numbers that the exponential does not hold."""

from types import ModuleType

import torch
from torch import Tensor

from grader.kit import Mismatch, quietly, start_script, task
from grader.kit.layout import Reading, padded
from grader.suites.transformer_ops.exact import (
    STRIDES,
    attend,
    expect_near,
    expect_unchanged,
    ops_of,
    random,
    sliced,
)
from solutions.transformer_ops import TransformerOps
from solutions.transformer_ops.naive import naive_attention
from yaie.core.batch import AttentionSpec

F32 = torch.float32
GAPS_ALONE = f"The same numbers without gaps in memory come out right. {STRIDES}"


def expect_slices(part: ModuleType, spec: AttentionSpec) -> None:
    """Attention of q, k and v with gaps of their own, behind a mask with gaps; all are as before."""
    q, k, v = sliced(random(2, 2, 2, 4), random(2, 5, 2, 4, seed=1), random(2, 5, 2, 4, seed=2))
    lens = torch.tensor([5, 3])
    mask = padded(TransformerOps().causal_mask(lens, 2, 5, spec.window, F32))
    inputs = {"q": q, "k": k, "v": v}

    def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return naive_attention(q.double(), k, v, spec, lens)

    right, reading = exact(q, k, v), Reading(exact, inputs)
    given = {**inputs, "mask": mask} | ({} if spec.sinks is None else {"the sinks": spec.sinks})
    before = {name: tensor.clone() for name, tensor in given.items()}
    ops = ops_of(part)
    got = ops.attention(q, k, v, mask, spec)
    try:
        expect_near(got, right, F32, "attention of slices", reading=reading)
    except Mismatch as mismatch:
        dense = quietly(ops).attention(*(x.contiguous() for x in (q, k, v, mask)), spec)
        mismatch.why = mismatch.why or (GAPS_ALONE if torch.allclose(dense, right.float()) else "")
        raise
    why = (
        "attention writes to none of its arguments. The mask serves every layer of a step, and sinks "
        "are the model's."
    )
    expect_unchanged(why, **{name: (tensor, before[name]) for name, tensor in given.items()})


@task("2.6")
def test_attention_of_slices(part: ModuleType) -> None:
    """q, k, v and the mask may be slices with gaps in memory, and are as before afterwards."""
    expect_slices(part, AttentionSpec(0.5))


def expect_large_scores(part: ModuleType, spec: AttentionSpec) -> None:
    """Attention to scores far beyond what the exponential holds in float32, up and down."""
    q, v = torch.ones(1, 1, 4, 2), torch.tensor([0.0, 4.0])[None, :, None, None].expand(1, 2, 2, 2)
    for score in (100.0, -200.0):
        k = torch.tensor([score, score + 1])[None, :, None, None].expand(1, 2, 2, 2).clone() / 2
        sinks = None if spec.sinks is None else spec.sinks + score
        start_script()
        here = AttentionSpec(spec.scale, softcap=spec.softcap, sinks=sinks)
        got = attend(part, q, k, v, here, [2])
        exact = naive_attention(q.double(), k, v, here, torch.tensor([2]))
        with_sinks = (
            f" with sinks from {sinks.min():g} to {sinks.max():g}" if sinks is not None else ""
        )
        lost = isinstance(got, Tensor) and not bool(got.isfinite().all())
        why = "e^100 is infinite in float32, and inf / inf is NaN. "
        if score < 0:
            why = "e^-200 is 0 in float32, and 0 / 0 is NaN. "
        why += "Subtract the largest of the scores, and of the sink, before the exponential."
        what = f"attention to scores {score:g} and {score + 1:g}{with_sinks}"
        expect_near(got, exact, F32, what, why=why if lost else "")


@task("2.6")
def test_large_scores(part: ModuleType) -> None:
    """Scores may be large: weights hang on their differences alone."""
    expect_large_scores(part, AttentionSpec(1.0))


@task("2.7")
def test_large_scores_and_sinks(part: ModuleType) -> None:
    """Scores and sinks may be large: weights hang on their differences alone."""
    sinks = torch.tensor([0.0, 1.0, -1.0, 2.0])
    expect_large_scores(part, AttentionSpec(1.0, sinks=sinks))
    expect_large_scores(part, AttentionSpec(1.0, softcap=1000.0))


@task("2.7")
def test_explicit_attention_of_slices(part: ModuleType) -> None:
    """With a softcap or sinks, too, arguments may be slices, and are as before afterwards."""
    expect_slices(part, AttentionSpec(0.5, softcap=2.0))
    expect_slices(part, AttentionSpec(0.5, sinks=padded(torch.tensor([0.5, -1.0]), dims=(0,))))
