"""Task 19.3: products on packed weights."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, examples, expect, expect_equal, task, watch
from grader.kit.expect import claiming
from grader.kit.kernels import padded
from grader.suites.quantization.bench import (
    Made,
    given_words,
    inputs_of,
    making,
    packed,
    told_of,
    weights,
)
from grader.suites.quantization.product_kinds import expect_product
from solutions import quantization as reference
from yaie.core.quantized import Int4Weight, Int8Weight

F32, F16 = torch.float32, torch.float16
ZERO = (
    "The zero is taken off every code, also of a weight whose scale comes behind the sum: the sum of x, "
    "times zero, is what is too much."
)
GROUP = "Each group's sum is multiplied by its own scale before it is added to the others'."
SUM = "Sums are float32: float16 ends at 65504, and loses small addends long before."
OF_INT4 = {"group": GROUP, "zero": ZERO, "sum": SUM}
OF_INT8 = {"zero": ZERO, "sum": SUM}
WHOLE = (
    "Unpacking all of the weight reads and writes eight times its bytes, and takes memory for the float "
    "weight that packing was to save. Work through it piece by piece."
)
DROP = "Packing is to save the memory of the float weight: when a piece is multiplied, drop it."


def exact8(x: Tensor, weight: Int8Weight) -> Tensor:
    zeros = 0 if weight.zeros is None else weight.zeros.double()[:, None]
    return x.double() @ ((weight.codes.double() - zeros) * weight.scales.double()[:, None]).t()


def exact4(x: Tensor, weight: Int4Weight) -> Tensor:
    codes, zeros = reference.Int4().unpack(weight)
    steps = codes.double().unflatten(1, (-1, weight.group_size)) - zeros.t().double()[..., None]
    return x.double() @ (steps * weight.scales.double().t()[..., None]).flatten(1).t()


@task("19.3")
def test_int8_by_hand(part: ModuleType) -> None:
    """x = (1, 2) times codes (3, 4), less a zero of 1, times a scale of 0.5, is 4."""
    codes = torch.tensor([[3, 4], [-1, 127]], dtype=torch.int8)
    scales, zeros = torch.tensor([0.5, 2.0]).half(), torch.tensor([1, -128], dtype=torch.int32)
    x, products = torch.tensor([[1.0, 2.0]]), watch(part.Int8(), "int8")
    weight = Int8Weight(codes, scales)
    got, right = products.product(x, weight), torch.tensor([[5.5, 506.0]])
    expect_product(got, right, x, weight, "the product without zeros", OF_INT8)
    weight = Int8Weight(codes, scales, zeros)
    got, right = products.product(x, weight), torch.tensor([[4.0, 1274.0]])
    expect_product(got, right, x, weight, "the product with zeros", OF_INT8)


@task("19.3")
def test_int4_by_hand(part: ModuleType) -> None:
    """Two groups of eight inputs: 1 * (3 - 8) * 0.5 each, and 2 * (3 - 1) * 10 each."""
    qweight = torch.full((2, 8), 0x33333333, dtype=torch.int32)
    scales = torch.tensor([[0.5], [10.0]]).expand(2, 8).contiguous().half()
    qzeros = torch.tensor([[0x88888888 - 2**32], [0x11111111]], dtype=torch.int32)
    x = torch.tensor([[1.0] * 8 + [2.0] * 8])
    weight = Int4Weight(qweight, scales, qzeros, 8)
    with given_words(part):
        got = watch(part.Int4(), "int4").product(x, weight)
    expect_product(got, torch.full((1, 8), 300.0), x, weight, "the product", OF_INT4)


@task("19.3")
def test_int8_sums_in_float32(part: ModuleType) -> None:
    """Inputs in float16 give a result in float16, of a sum that was float32."""
    codes = torch.full((2, 512), 127, dtype=torch.int8)
    weight = Int8Weight(codes, torch.tensor([1e-3, 2e-3]).half())
    x = torch.full((1, 512), 2.0, dtype=F16)
    got = watch(part.Int8(), "int8").product(x, weight)
    expect_product(got, exact8(x, weight), x, weight, "the product in float16", OF_INT8)


@task("19.3")
def test_int4_sums_in_float32(part: ModuleType) -> None:
    """Inputs in float16 give a result in float16, of a sum that was float32."""
    # Up to 128,000 and down again, to 2,000.
    codes = torch.tensor([9] * 2048 + [7] * 2016 + [8] * 32, dtype=torch.int32).expand(8, 4096)
    scales, zeros = torch.full((128, 8), 62.5).half(), torch.full((128, 8), 8, dtype=torch.int32)
    weight = reference.Int4().pack(codes, scales, zeros)
    x, right = torch.ones(1, 4096, dtype=F16), torch.full((1, 8), 2000.0)
    with given_words(part):
        got = watch(part.Int4(), "int4").product(x, weight)
    expect_product(got, right, x, weight, "the product in float16", OF_INT4)
    x = inputs_of(2, 256, dtype=F16)
    weight = packed(16, 256, 32)
    with given_words(part):
        got = watch(part.Int4(), "int4").product(x, weight)
    expect_product(got, exact4(x, weight), x, weight, "the product in float16", OF_INT4)


@task("19.3")
def test_int8_is_not_unpacked_as_a_whole(part: ModuleType) -> None:
    """No more than 64 outputs of the weight are there in floating point at a time."""
    weight = reference.Int8().quantize(weights(1920, 96), symmetric=False)
    x = inputs_of(2, 96)
    products = part.Int8()
    with making(weight.codes, x) as made:
        got = products.product(x, weight)
    expect_product(got, exact8(x, weight), x, weight, "a product of 1,920 outputs", OF_INT8)
    numbers, what = made.largest()
    expect(
        numbers <= 64 * 96,
        f"the product made a tensor {what}: {numbers} numbers, not 6,144",
        why=WHOLE,
    )
    most = 4 * 64 * 96 * 4 + got.nbytes
    del got
    expect_few_at_once(made, most)


@task("19.3")
def test_int4_is_not_unpacked_as_a_whole(part: ModuleType) -> None:
    """No more than one group of inputs is unpacked at a time."""
    weight, x = packed(64, 2048, 32), inputs_of(2, 2048)
    products = part.Int4()
    with given_words(part), making(weight.qweight, x) as made:
        got = products.product(x, weight)
    expect_product(got, exact4(x, weight), x, weight, "a product of 64 groups", OF_INT4)
    numbers, what = made.largest()
    expect(
        numbers <= 64 * 32,
        f"the product made a tensor {what}: {numbers} numbers, not 2,048",
        why=WHOLE,
    )
    most = 8 * 64 * 32 * 4 + got.nbytes
    del got
    expect_few_at_once(made, most)


def expect_few_at_once(made: Made, most: int) -> None:
    """most: bytes, with room for a piece in several dtypes."""
    if made.peak <= most:
        return
    left = made.left()
    if sum(size for size, _ in left) > (made.peak - most) / 2:
        kept = told_of([told for _, told in left])
        with claiming("A product leaves nothing of the unpacked weight behind."):
            raise Mismatch(f"after the product there are still {kept}", why=DROP)
    problem = f"the product has {made.peak:,} bytes of its own at once, where {most:,} do"
    raise Mismatch(f"{problem}: among them {told_of(made.at_peak)}", why=DROP)


@task("19.3")
def test_sums_that_cancel(part: ModuleType) -> None:
    """Inputs in float16 whose products cancel: nothing is rounded to float16 but the result."""
    products = watch(part.Int8(), "int8")
    codes, zeros = torch.full((1, 4), -128, dtype=torch.int8), torch.tensor([-128]).int()
    weight = Int8Weight(codes, torch.ones(1).half(), zeros)
    x = torch.tensor([[2048.0, 1.0, 1.0, 1.0]]).half()
    got, right = products.product(x, weight), torch.zeros(1, 1)
    what = "the product of x with codes that are all the zero's"
    expect_product(got, right, x, weight, what, OF_INT8)
    weight = Int8Weight(
        torch.tensor([[127, 126]]).to(torch.int8), torch.tensor([1 + 2**-10]).half()
    )
    x = torch.tensor([[126.0, -127.0]]).half()
    got = products.product(x, weight)
    expect_product(got, right, x, weight, "126 * 127 - 127 * 126, times a scale", OF_INT8)


def beyond_half() -> tuple[Tensor, Int4Weight]:
    """x in float16, and a weight with which the sum of a group is 224,000, and comes to 4,480 in all."""
    codes, zeros = torch.full((8, 64), 15).int(), torch.full((2, 8), 8).int()
    weight = reference.Int4().pack(codes, torch.full((2, 8), 0.01).half(), zeros)
    return torch.full((1, 64), 1000.0).half(), weight


@task("19.3")
def test_the_sum_of_a_group_is_float32(part: ModuleType) -> None:
    """The sum of a group may be more than float16 holds, before it is multiplied by its scale."""
    x, weight = beyond_half()
    with given_words(part):
        got = watch(part.Int4(), "int4").product(x, weight)
    what = "the product of groups whose sums are 224,000"
    expect_product(got, exact4(x, weight), x, weight, what, OF_INT4)


@task("19.3")
def test_products_of_no_rows(part: ModuleType) -> None:
    """No inputs give no outputs, in the dtype of x."""
    wide = Int8Weight(torch.ones(3, 16, dtype=torch.int8), torch.ones(3).half())
    for dtype in (F32, F16):
        x = torch.zeros(0, 16, dtype=dtype)
        got = watch(part.Int8(), "int8").product(x, wide)
        seen = (list(got.shape), got.dtype)
        expect_equal(seen, ([0, 3], dtype), "shape and dtype of an INT8 product of no rows")
        with given_words(part):
            got = watch(part.Int4(), "int4").product(x, packed(8, 16, 8))
        seen = (list(got.shape), got.dtype)
        expect_equal(seen, ([0, 8], dtype), "shape and dtype of an INT4 product of no rows")


@task("19.3")
@examples(20)
@given(st.integers(1, 4), st.integers(1, 130), st.integers(1, 40), st.booleans(), st.booleans())
def test_any_int8_product(
    part: ModuleType, rows: int, out: int, inputs: int, symmetric: bool, half: bool
) -> None:
    """Of any shape the product is that of the dequantized weight."""
    weight = reference.Int8().quantize(weights(out, inputs), symmetric=symmetric)
    x = padded(inputs_of(rows, inputs, dtype=F16 if half else F32))
    got = watch(part.Int8(), "int8").product(x, weight)
    expect_product(got, exact8(x, weight), x, weight, "the INT8 product", OF_INT8)


@task("19.3")
@examples(20)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.sampled_from([8, 16, 32]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_int4_product(
    part: ModuleType, rows: int, out: int, groups: int, size: int, symmetric: bool, half: bool
) -> None:
    """Of any shape the product is that of the dequantized weight."""
    weight = packed(8 * out, groups * size, size, symmetric=symmetric)
    x = padded(inputs_of(rows, groups * size, dtype=F16 if half else F32))
    with given_words(part):
        got = watch(part.Int4(), "int4").product(x, weight)
    expect_product(got, exact4(x, weight), x, weight, "the INT4 product", OF_INT4)
