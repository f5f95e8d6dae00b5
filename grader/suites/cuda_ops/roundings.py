"""Which numbers of a norm are rounded to 16 bits: its last bit, and what mistakes would make of it."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from grader.kit import expect_close

SLACK = 1e-5
"""How far a float32 scale may be off, whatever the order in which its squares were added."""
RARE = 0.004
"""How many numbers may round the other way, of those that a mistake explains."""
THREADS = 32, 64, 128, 256, 512, 1024
"""Of a row: a part is free to choose."""
FLOAT32 = (
    "Squares, their sum, its root and the scale are float32. x * scale is rounded to the dtype of x, "
    "and so is its product with the weight: nothing else is rounded."
)
ROUNDED_SUM = "What is squared and multiplied by the scale is the sum as it was rounded and stored."


def fine(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers with all the digits that the dtype has."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def scale_of(squares: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean + eps), of squares [.., d]."""
    return 1 / (squares.mean(dim=-1, keepdim=True) + eps).sqrt()


def summed_in_half(x: Tensor, threads: int, pack: int) -> Tensor:
    """The squares' sums [rows, 1] of x [rows, d], where each of so many threads rounds its own sum to
    the dtype of x with each addition, and those of the threads are added exactly."""
    rows, d = x.shape
    squares = torch.zeros(rows, -(-d // (threads * pack)) * threads * pack)
    squares[:, :d] = x.float().square()
    each = (
        squares.view(rows, -1, threads, pack).transpose(2, 3).flatten(1, 2)
    )  # in a thread's order
    total = torch.zeros(rows, threads)
    for turn in range(each.shape[1]):
        total = (total + each[:, turn]).to(x.dtype).float()
    return total.double().sum(dim=1, keepdim=True)


def rounded_norm(x: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    """x * scale, rounded to the weight's dtype, and then its product with the weight, rounded."""
    return ((x.double() * scale).to(weight.dtype).double() * weight.double()).to(weight.dtype)


def expect_rounded(
    got: Tensor, x: Tensor, weight: Tensor, eps: float, what: str, exact_sum: Tensor | None = None
) -> None:
    """The norm of x [.., d] of 16 bits, to the last bit; where a scale in float32 decides, either way.

    exact_sum: what was rounded to x, if x is a sum.
    """
    wide, dtype = x.double(), x.dtype
    scale = scale_of(wide.square(), eps)
    ends = [rounded_norm(x, scale * factor, weight) for factor in (1 - SLACK, 1 + SLACK)]
    least, most = torch.minimum(*ends), torch.maximum(*ends)
    if not isinstance(got, Tensor) or got.shape != x.shape:
        expect_close(got, rounded_norm(x, scale, weight), what)
    right = got.where((got >= least) & (got <= most), rounded_norm(x, scale, weight))
    name = str(dtype).removeprefix("torch.")
    square = f"Each square was rounded to {name}. Squares are float32."
    kinds: dict[str, Callable[[], Tensor]] = {
        f"What came out was rounded once: x * scale is rounded to {name} before the weight multiplies "
        "it, as Llama's own code does.": lambda: (wide * scale * weight.double()).to(dtype),
        f"The scale was rounded to {name} before it multiplied x. It is float32.": lambda: (
            rounded_norm(x, scale.to(dtype).double(), weight)
        ),
        square: lambda: rounded_norm(x, scale_of(wide.square().to(dtype).double(), eps), weight),
    }
    own = f"Each thread's sum of squares was rounded to {name} with each addition. It is float32."
    for threads, pack in itertools.product(THREADS, (1, 16 // dtype.itemsize)):
        if x.shape[-1] % pack == 0 and (
            pack > 1 or threads < x.shape[-1]
        ):  # else it has one square
            kinds[f"{own}\0{threads} {pack}"] = lambda n=threads, p=pack: rounded_norm(  # type: ignore[misc]
                x, scale_of(summed_in_half(x, n, p) / x.shape[-1], eps), weight
            )
    why = FLOAT32
    if exact_sum is not None:
        why = f"{FLOAT32} {ROUNDED_SUM}"
        kinds |= {
            f"The scale is right, and it multiplied the sum before that was rounded. {ROUNDED_SUM}": (
                lambda: rounded_norm(exact_sum, scale, weight)
            ),
            f"The squares are those of the sum before it was rounded. {ROUNDED_SUM}": lambda: (
                rounded_norm(x, scale_of(exact_sum.double().square(), eps), weight)
            ),
        }
    # A kind must account for what is right, too: many mistakes make some of the same numbers wrong.
    wrong, off = int((right != got).sum()), dict[str, int]()
    for told, compute in kinds.items() if wrong else ():
        text, count = told.split("\0")[0], int((compute() != got).sum())
        off[text] = min(count, off.get(text, count))
    limit = min(RARE * got.numel(), wrong / 4)
    # Where few numbers are wrong, siblings come near: what gives each number alone is said.
    found = [told for told, count in off.items() if count == 0]
    found = found or [told for told, count in off.items() if count < limit]
    if set(found) == {square, own}:  # with a square for each thread they are one
        found = [
            f"Squares, or the sum of them that a thread has, were rounded to {name}: both are float32."
        ]
    expect_close(got, right, what, rtol=0, atol=0, why=found[0] if len(found) == 1 else why)
