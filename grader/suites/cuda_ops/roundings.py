"""Which numbers of a norm are rounded to 16 bits: its last bit, and what mistakes would make of it."""

from collections.abc import Callable

import torch
from torch import Tensor

from grader.kit import expect_close

SLACK = 1e-5
"""How far a float32 scale may be off, whatever the order in which its squares were added."""
RARE = 0.004
"""How many numbers may round the other way, of those that a mistake explains."""
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
    kinds: dict[str, Callable[[], Tensor]] = {
        f"What came out was rounded once: x * scale is rounded to {name} before the weight multiplies "
        "it, as Llama's own code does.": lambda: (wide * scale * weight.double()).to(dtype),
        f"The scale was rounded to {name} before it multiplied x. It is float32.": lambda: (
            rounded_norm(x, scale.to(dtype).double(), weight)
        ),
        f"Each square was rounded to {name}. Squares are float32.": lambda: rounded_norm(
            x, scale_of(wide.square().to(dtype).double(), eps), weight
        ),
    }
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
    found = [
        told for told, compute in kinds.items() if float((compute() != got).double().mean()) < RARE
    ]
    expect_close(got, right, what, rtol=0, atol=0, why=found[0] if len(found) == 1 else why)
