"""Task 19.6: the product as one kernel."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, task, watch
from grader.kit.beside import Beside, expect_nothing_beside
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_near, padded
from grader.kit.triton_watch import Seen, watching
from grader.suites.quantization.bench import inputs_of, packed
from grader.suites.quantization.product_kinds import expect_product
from grader.suites.quantization.test_products import beyond_half, exact4
from solutions import quantization as reference
from yaie.core.quantized import Int4Weight

F32, F16 = torch.float32, torch.float16
TAIL = (
    "A tile has more rows or columns than there are: lanes past the end load 0 and store nothing."
)
GROUP = (
    "Scale and zero are those of the step's group, begin // GROUP, and of each column; a step's sum is "
    "multiplied by its own scale before it is added."
)
WORDS = (
    "Word begin // 8 of a column holds the codes of inputs begin to begin + 7, the first in the lowest "
    "four bits."
)
ZEROS = "The zero of column n is in bits 4 * (n % 8) of word n // 8 of the group's row of qzeros."
SUM = "Steps are summed in float32, whatever dtype x has; only the result is rounded."
OF_PRODUCTS = {"words": WORDS, "group": GROUP, "zero": ZEROS, "sum": SUM}
TF32 = (
    'The default of input_precision is "tf32", which keeps 10 bits of each factor: on a GPU the '
    'inputs are off in the fourth digit, and in the interpreter nothing shows it. Ask for "ieee".'
)
FOR_A_STEP = (
    "A step's inputs are of one group: each column has one scale and one zero for all of them, which "
    "are loaded once and not for each input."
)
ONCE = (
    "A word holds eight codes: loaded once, it is shifted by 0, 4, ..., 28 in registers. Loaded for "
    "each of its codes, INT4 moves as many bytes as float32."
)


def run(part: ModuleType, x: Tensor, weight: Int4Weight, **how: Any) -> tuple[Tensor, Seen]:
    kernels = watch(part.fused_int4(), "kernels")
    with watching(**how) as seen:
        got = kernels.product(x, weight)
    return got, seen


@task("19.6")
def test_a_group_by_hand(part: ModuleType) -> None:
    """Codes of 3 less zeros of 0 to 7, times a scale for each column, summed over sixteen inputs."""
    qweight = torch.full((2, 16), 0x33333333, dtype=torch.int32)
    scales = torch.arange(1, 17).float().half()[None]
    qzeros = torch.tensor([[0x76543210, 0x76543210]], dtype=torch.int32)
    got, _ = run(part, torch.ones(1, 16), Int4Weight(qweight, scales, qzeros, 16))
    zeros = torch.arange(16) % 8
    right = 16.0 * (3 - zeros) * torch.arange(1, 17)
    weight = Int4Weight(qweight, scales, qzeros, 16)
    expect_product(got, right[None].float(), torch.ones(1, 16), weight, "the product", OF_PRODUCTS)


@task("19.6")
def test_each_input_meets_its_code(part: ModuleType) -> None:
    """Input i alone gives row i of the weight: its nibble, of its word."""
    weight = packed(16, 64, 32, seed=3)
    got, _ = run(part, torch.eye(64), weight)
    right, what = reference.Int4().dequantize(weight).t(), "the product with 1 at input i"
    expect_product(got, right, torch.eye(64), weight, what, OF_PRODUCTS)


@task("19.6")
def test_groups_have_scales_of_their_own(part: ModuleType) -> None:
    """Groups of 16, 32, 64 and 96 inputs, and one for all of them."""
    for size, inputs in ((16, 64), (32, 96), (64, 192), (96, 192), (128, 128)):
        weight, x = packed(24, inputs, size), inputs_of(3, inputs)
        got, _ = run(part, x, weight)
        what = f"groups of {size} in {inputs} inputs"
        expect_product(got, exact4(x, weight), x, weight, what, OF_PRODUCTS)


@task("19.6")
def test_the_tails_of_tiles(part: ModuleType) -> None:
    """5 and 70 rows, 8 and 72 columns: the last tile is not full."""
    for rows, out in ((5, 8), (70, 72), (17, 40)):
        weight, x = packed(out, 32, 16), inputs_of(rows, 32)
        got, _ = run(part, x, weight)
        expect_equal(list(got.shape), [rows, out], "the shape of the product")
        expect_near(got, exact4(x, weight), F32, f"{rows} rows and {out} columns", why=TAIL)


@task("19.6")
def test_rows_may_have_gaps(part: ModuleType) -> None:
    """x may be a view of a wider product: a row is found with x's stride."""
    weight, x = packed(16, 64, 32), padded(inputs_of(6, 64))
    why = f"Rows are {x.stride(0)} numbers apart, and NaN lies in between."
    got, _ = run(part, x, weight, why=why)
    expect_near(got, exact4(x, weight), F32, "the product of rows with gaps", why=why)


@task("19.6")
def test_rows_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a row may be more than int32 holds."""
    with far() as apart:
        x, weight = apart(inputs_of(3, 32, dtype=F16)), packed(16, 32, 16)
        got, _ = run(part, x, weight)
        expect_near(
            got, exact4(x, weight), F16, "the product of rows that are far apart", why=FAR_WHY
        )


@task("19.6")
def test_sums_are_float32(part: ModuleType) -> None:
    """x in float16 gives a result in float16, of sums that were float32."""
    # Up to 96,000 and down again, to 2,000.
    codes = torch.tensor([9] * 96 + [7] * 94 + [8] * 2, dtype=torch.int32).expand(8, 192)
    scales, zeros = torch.full((6, 8), 1000.0).half(), torch.full((6, 8), 8, dtype=torch.int32)
    weight = reference.Int4().pack(codes, scales, zeros)
    x, what = torch.ones(1, 192, dtype=F16), "the product in float16"
    got, _ = run(part, x, weight)
    expect_product(got, torch.full((1, 8), 2000.0), x, weight, what, OF_PRODUCTS)
    x, weight = inputs_of(4, 256, dtype=F16), packed(16, 256, 32)
    got, _ = run(part, x, weight)
    expect_product(got, exact4(x, weight), x, weight, what, OF_PRODUCTS)


@task("19.6")
def test_products_of_float32_are_float32(part: ModuleType) -> None:
    """Where tl.dot multiplies float32, it does so in float32."""
    _, seen = run(part, inputs_of(3, 64), packed(16, 64, 32))
    named = sorted({precision for precision in seen.precisions if precision})
    problem = f"tl.dot multiplies float32 with input_precision {named}"
    expect(named in ([], ["ieee"]), problem, why=TF32)


@task("19.6")
def test_a_word_is_loaded_once(part: ModuleType) -> None:
    """One launch reads each word of the weight once, for few rows, and writes each result once."""
    weight, x = packed(64, 256, 64), inputs_of(3, 256)
    got, seen = run(part, x, weight)
    expect_equal(
        len(seen.launches), 1, "the launches of a product", why="Nothing is unpacked to memory."
    )
    words, most = seen.loads(weight.qweight), weight.qweight.numel()
    expect(words <= most, f"{words} words of qweight are read, where {most} do", why=ONCE)
    expect_equal(seen.stores(got), got.numel(), "the numbers written", why=TAIL)
    for name, tensor in (("scales", weight.scales), ("words of qzeros", weight.qzeros)):
        found, most = seen.loads(tensor), 64 * 256 // 16
        told = (
            f"{found} {name} are read by 64 columns in steps of 16 inputs or more, where {most} do"
        )
        expect(found <= most, told, why=FOR_A_STEP)
    found, most = seen.loads(x), x.numel() * seen.programs
    told = f"{found} numbers of x are read by {seen.programs} programs, where {most} do"
    expect(found <= most, told, why="A program reads its rows of x once.")


@task("19.6")
def test_nothing_is_done_beside_the_launch(part: ModuleType) -> None:
    """One launch is all: rows with gaps and float16 scales are read as they are, out is written once."""
    weight, x = packed(16, 64, 32), padded(inputs_of(6, 64))
    kernels = part.fused_int4()
    with watching() as seen, Beside(part) as beside:
        kernels.product(x, weight)
    expect_equal(len(seen.launches), 1, "the launches of a product")
    expect_nothing_beside(beside.operations, "product")


@task("19.6")
def test_the_sum_of_a_step_is_float32(part: ModuleType) -> None:
    """The sum of a step may be more than float16 holds, before it is multiplied by its scale."""
    x, weight = beyond_half()
    got, _ = run(part, x, weight)
    what = "the product of groups whose sums are 224,000"
    expect_product(got, exact4(x, weight), x, weight, what, OF_PRODUCTS)


@task("19.6")
def test_no_rows(part: ModuleType) -> None:
    """No inputs give no outputs, without a launch."""
    got, seen = run(part, torch.zeros(0, 32), packed(8, 32, 16))
    expect_equal(
        (list(got.shape), len(seen.launches)), ([0, 8], 0), "shape and launches of no rows"
    )


@task("19.6")
@examples(8)
@given(
    st.integers(1, 20), st.integers(1, 5), st.integers(1, 3), st.sampled_from([16, 32, 48]),
    st.sampled_from([F32, F16]), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_any_product(
    part: ModuleType, rows: int, out: int, groups: int, size: int, dtype: torch.dtype,
    symmetric: bool, seed: int,
) -> None:  # fmt: skip
    """For any shape and dtype it is the product with the dequantized weight."""
    weight = packed(8 * out, groups * size, size, symmetric=symmetric, seed=seed)
    x = inputs_of(rows, groups * size, seed, dtype)
    got, _ = run(part, x, weight)
    what = f"the product in {dtype}"
    expect_product(got, exact4(x, weight), x, weight, what, OF_PRODUCTS)
