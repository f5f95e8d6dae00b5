"""Task 19.4: GPTQ's Hessian and the factor of its inverse."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, task, watch
from solutions import quantization as reference

MEAN = (
    "H is 2 / n times the sum of x x^T over all n inputs so far: what was there before shrinks by "
    "n_old / n_new, and each batch adds 2 / n_new of its own sum."
)
DAMPED = (
    "`damping` times the mean of the live diagonal is added to every live diagonal entry: without it a "
    "Hessian of few inputs has no inverse."
)
DEAD = "An input that was always 0 has a row and a column of zeros in H: its diagonal becomes 1."
INVERSE = "U^T U is the inverse of the damped H, with U upper triangular."


def drawn(n: int, inputs: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(n, inputs, generator=generator)
    return mixed + 0.5 * mixed.roll(1, dims=1)


def hessian_of(x: Tensor) -> Tensor:
    return (2 / len(x) * (x.double().t() @ x.double())).float()


@task("19.4")
def test_a_hessian_by_hand(part: ModuleType) -> None:
    """The inputs (1, 2) and (3, 0) give 2 / 2 * [[10, 2], [2, 4]]."""
    got = watch(part.Hessian(2), "hessian")
    expect_close(got.hessian, torch.zeros(2, 2), "the Hessian of nothing")
    got.add(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
    expect_close(got.hessian, torch.tensor([[10.0, 2.0], [2.0, 4.0]]), "the Hessian", why=MEAN)
    expect_equal(got.num_inputs, 2, "num_inputs")


@task("19.4")
def test_batches_count_by_their_inputs(part: ModuleType) -> None:
    """Batches of different sizes give what all inputs at once give."""
    x = drawn(40, 6)
    got = watch(part.Hessian(6), "hessian")
    for begin, end in ((0, 1), (1, 30), (30, 30), (30, 40)):
        got.add(x[begin:end])
    expect_equal(got.num_inputs, 40, "num_inputs")
    expect_close(
        got.hessian, hessian_of(x), "the Hessian of four batches", rtol=1e-4, atol=1e-5, why=MEAN
    )


@task("19.4")
def test_sequences_are_inputs_one_by_one(part: ModuleType) -> None:
    """[2, 3, 5] is six inputs; float16 is widened before anything is summed."""
    x = drawn(6, 5).half()
    got = watch(part.Hessian(5), "hessian")
    got.add(x.view(2, 3, 5))
    expect_equal(got.num_inputs, 6, "num_inputs of [2, 3, 5]", why="Every token is an input.")
    expect_close(got.hessian, hessian_of(x), "the Hessian", rtol=1e-4, atol=1e-5, why=MEAN)
    large = torch.full((1, 5), 300.0).half()
    got = watch(part.Hessian(5), "hessian")
    got.add(large)
    why = "300 * 300 is more than float16 holds."
    expect_close(got.hessian, torch.full((5, 5), 180000.0), "the Hessian of 300s", why=why)


@task("19.4")
def test_a_factor_by_hand(part: ModuleType) -> None:
    """Of [[1, 0], [0, 4]] without damping it is [[1, 0], [0, 1 / 2]]."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    got = gptq.factor(torch.tensor([[1.0, 0.0], [0.0, 4.0]]), damping=0.0)
    expect_close(got, torch.tensor([[1.0, 0.0], [0.0, 0.5]]), "the factor", why=INVERSE)
    # The inverse of [[2, 1], [1, 1]] is [[1, -1], [-1, 2]] = U^T U with U = [[1, -1], [0, 1]].
    got = gptq.factor(torch.tensor([[2.0, 1.0], [1.0, 1.0]]), damping=0.0)
    why = f"{INVERSE} The lower factor, turned around, is another matrix."
    expect_close(got, torch.tensor([[1.0, -1.0], [0.0, 1.0]]), "the factor", atol=1e-5, why=why)


@task("19.4")
def test_damping(part: ModuleType) -> None:
    """Damping adds its share of the mean diagonal entry to each, so that one input is enough."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    got = gptq.factor(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), damping=0.5)
    right = torch.tensor([[0.5, 0.0], [0.0, 2**-0.5]])
    expect_close(got, right, "the factor of diag(3, 1), damped by half of 2", why=DAMPED)
    hessian = hessian_of(drawn(1, 6))
    got = gptq.factor(hessian.clone())
    expect(bool(got.isfinite().all()), "the factor of a single input is not finite", why=DAMPED)
    damped = hessian.double() + 0.01 * hessian.double().diagonal().mean() * torch.eye(6)
    near = got.double().t() @ got.double() @ damped
    expect_close(near, torch.eye(6).double(), "U^T U times the damped H", atol=2e-2, why=DAMPED)


@task("19.4")
def test_dead_inputs(part: ModuleType) -> None:
    """An input that was always 0 changes nothing for the others."""
    x = drawn(50, 6)
    x[:, 2] = 0
    hessian, kept = hessian_of(x), hessian_of(x)
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    got = gptq.factor(hessian, damping=0.1)
    expect_close(hessian, kept, "the Hessian that was given", why="It belongs to the caller.")
    live = [0, 1, 3, 4, 5]
    alone = gptq.factor(hessian[live][:, live].clone(), damping=0.1)
    expect_close(got[live][:, live], alone, "U of the live inputs", rtol=1e-4, atol=1e-5, why=DEAD)
    expect_close(got[2, 2], torch.tensor(1.0), "U at the dead input", why=DEAD)
    nothing = gptq.factor(torch.zeros(3, 3))
    expect_close(nothing, torch.eye(3), "the factor where every input is dead", why=DEAD)


@task("19.4")
@examples(15)
@given(
    st.integers(1, 12), st.integers(1, 30), st.sampled_from([0.01, 0.1, 1.0]), st.integers(0, 99)
)
def test_any_factor(part: ModuleType, inputs: int, n: int, damping: float, seed: int) -> None:
    """U is upper triangular with a positive diagonal, and U^T U inverts the damped Hessian."""
    hessian = hessian_of(drawn(n, inputs, seed))
    got = watch(part.Gptq(reference.Int4()), "gptq").factor(hessian, damping)
    expect_equal(got.dtype, torch.float32, "the dtype of U")
    expect(bool((got.tril(-1) == 0).all()), "U is not upper triangular", why=INVERSE)
    expect(bool((got.diagonal() > 0).all()), "the diagonal of U is not positive", why=INVERSE)
    mean = hessian.double().diagonal().mean()
    damped = hessian.double() + damping * mean * torch.eye(inputs)
    near = got.double().t() @ got.double() @ damped
    why = f"{INVERSE} {DAMPED}"
    expect_close(near, torch.eye(inputs).double(), "U^T U times the damped H", atol=2e-2, why=why)
