"""Task 19.4: GPTQ's Hessian and the factor of its inverse."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, start_script, task, watch
from grader.kit.expect import claiming
from grader.kit.mistakes import told_by
from grader.suites.quantization.bench import making
from solutions import quantization as reference

MEAN = (
    "H is 2 / n times the sum of x x^T over all n inputs so far: what was there before shrinks by "
    "n_old / n_new, and each batch adds 2 / n_new of its own sum."
)
IN_HALF = (
    "These are the numbers of a product in float16, which rounds every sum to 11 bits. x becomes "
    "float32 before it is multiplied, and not after."
)
DAMPED = (
    "`damping` times the mean of the live diagonal is added to every live diagonal entry: without it a "
    "Hessian of few inputs has no inverse."
)
DEAD = "An input that was always 0 has a row and a column of zeros in H: its diagonal becomes 1."
ONE_PRODUCT = (
    "Calibration takes hundreds of thousands of inputs of thousands of numbers. The sum of all x x^T is "
    "one product, inputs^T @ inputs: no loop, and no outer product for each."
)
SMALL = (
    "A diagonal entry is 0 for a dead input, and for no other: compare with 0, and add nothing that "
    "does not go with the size of H."
)
LEAST_ADDED = 3e-6
"""What float32 loses on the way is less."""
INVERSE = "U^T U is the inverse of the damped H, with U upper triangular."


def drawn(n: int, inputs: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(n, inputs, generator=generator)
    return mixed + 0.5 * mixed.roll(1, dims=1)


def hessian_of(x: Tensor) -> Tensor:
    return (2 / len(x) * (x.double().t() @ x.double())).float()


def why_factor(upper: Tensor, hessian: Tensor) -> str:
    """What has been added to every entry of the diagonal without damping, if anything; else the rule."""
    made = upper.double().t() @ upper.double()
    more = torch.linalg.pinv(made) - hessian.double() if bool(made.isfinite().all()) else made * 0
    amount = float(more.diagonal().mean())
    is_even = bool(((more - amount * torch.eye(len(more))).abs() <= 0.2 * amount).all())
    if amount < LEAST_ADDED or not is_even:
        return INVERSE
    return (
        f"U^T U is the inverse of H with {amount:.1g} more in every entry of the diagonal. damping is 0 "
        "here: nothing may be added."
    )


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
    in_half = (2 / 6) * (x.t() @ x).float()
    is_narrow = got.hessian.shape == (5, 5) and torch.allclose(
        got.hessian.float(), in_half, rtol=1e-6
    )
    why = IN_HALF if is_narrow else MEAN
    expect_close(got.hessian, hessian_of(x), "the Hessian", rtol=1e-4, atol=1e-5, why=why)
    large = torch.full((1, 5), 300.0).half()
    got = watch(part.Hessian(5), "hessian")
    got.add(large)
    why = "300 * 300 is more than float16 holds."
    expect_close(got.hessian, torch.full((5, 5), 180000.0), "the Hessian of 300s", why=why)


@task("19.4")
def test_a_factor_by_hand(part: ModuleType) -> None:
    """Without damping it is [[1, 0], [0, 1 / 2]] of [[1, 0], [0, 4]], and [[1, -1], [0, 1]] of
    [[2, 1], [1, 1]]."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    hessian = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    got = gptq.factor(hessian.clone(), damping=0.0)
    why = why_factor(got, hessian)
    expect_close(got, torch.tensor([[1.0, 0.0], [0.0, 0.5]]), "the factor", why=why)
    # The inverse of [[2, 1], [1, 1]] is [[1, -1], [-1, 2]] = U^T U with U = [[1, -1], [0, 1]].
    start_script()
    hessian = torch.tensor([[2.0, 1.0], [1.0, 1.0]])
    got = gptq.factor(hessian.clone(), damping=0.0)
    half = 0.5**0.5
    gives = {
        f"{INVERSE} Here U U^T is: this is a lower factor, turned around.": torch.tensor(
            [[half, -half], [0.0, 2 * half]]
        ),
        f"{INVERSE} Here it is H itself.": torch.tensor([[2 * half, half], [0.0, half]]),
    }
    what = "the factor of [[2, 1], [1, 1]]"
    right = torch.tensor([[1.0, -1.0], [0.0, 1.0]])
    expect_close(got, right, what, atol=1e-5, why=told_by(got, gives) or why_factor(got, hessian))


@task("19.4")
def test_damping(part: ModuleType) -> None:
    """Damping adds its share of the mean diagonal entry to each, so that one input is enough."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    hessian, kept = (torch.tensor([[3.0, 0.0], [0.0, 1.0]]) for _ in range(2))
    got = gptq.factor(hessian, damping=0.5)
    right = torch.tensor([[0.5, 0.0], [0.0, 2**-0.5]])
    expect_close(got, right, "the factor of diag(3, 1), damped by half of 2", why=DAMPED)
    with claiming("factor leaves the Hessian that it is given as it was."):
        added = {
            "The damping was added to the tensor that was given.": torch.diag(
                right.diagonal() ** -2
            )
        }
        expect_close(hessian, kept, "the Hessian afterwards", why=told_by(hessian, added))
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


@task("19.4")
def test_inputs_of_zeros_count(part: ModuleType) -> None:
    """An input that is all zeros is one of the n; num_inputs is an int."""
    got = watch(part.Hessian(2), "hessian")
    got.add(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    why = "The mean is over all calibration inputs: a zero makes it smaller, as any other number does."
    expect_equal(got.num_inputs, 2, "num_inputs of (2, 0) and (0, 0)", why=why)
    expect(isinstance(got.num_inputs, int), f"num_inputs is a {type(got.num_inputs).__name__}")
    expect_close(got.hessian, torch.tensor([[4.0, 0.0], [0.0, 0.0]]), "the Hessian", why=why)


@task("19.4")
def test_a_batch_is_one_product(part: ModuleType) -> None:
    """60 inputs take as few operations as 4, and no room for 60 matrices."""
    counts = []
    for n in (4, 60):
        got, x = part.Hessian(8), drawn(n, 8)
        with making(x) as made:
            got.add(x)
        counts.append(len(made.results))
    told = f"{counts[0]} tensors are made for 4 inputs, and {counts[1]} for 60"
    expect(counts[1] < counts[0] + 20, told, why=ONE_PRODUCT)
    numbers, what = made.largest()
    problem = f"add of 60 inputs of 8 numbers makes a tensor {what}: {numbers:,} numbers"
    expect(numbers <= 60 * 8, problem, why=ONE_PRODUCT)


@task("19.4")
def test_small_inputs_are_alive(part: ModuleType) -> None:
    """Inputs are dead that were 0 throughout, and none that were small: U goes with their size."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    hessian, right = torch.tensor([[2.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, -1.0], [0, 1.0]])
    for size in (1e-8, 1e-4):
        got = gptq.factor(hessian * size, damping=0.0) * size**0.5
        what = f"the factor of [[2, 1], [1, 1]] times {size:g}, in units of its root"
        expect_close(got, right, what, rtol=1e-3, atol=1e-3, why=SMALL)
    got = gptq.factor(torch.diag(torch.tensor([1e-7, 1.0])), damping=0.0)
    right = torch.diag(torch.tensor([1e7**0.5, 1.0]))
    expect_close(got, right, "the factor of diag(1e-7, 1)", rtol=1e-3, why=SMALL)


@task("19.4")
def test_a_factor_goes_by_its_hessian(part: ModuleType) -> None:
    """A Hessian that has grown where it lies has another factor; the first one stays."""
    gptq = watch(part.Gptq(reference.Int4()), "gptq")
    hessian = torch.eye(2)
    first = gptq.factor(hessian, damping=0.0)
    hessian *= 4
    second = gptq.factor(hessian, damping=0.0)
    why = "The same tensor may hold other numbers: compute the factor at each call."
    expect_close(second, torch.eye(2) / 2, "the factor of 4 times the identity", why=why)
    expect_close(first, torch.eye(2), "the factor that was returned before", why=why)
