"""Task 19.2: four bits a weight, in groups, packed."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_close, expect_equal, start_script, task, watch
from grader.suites.quantization.bench import STORED, expect_nearest, weights
from grader.suites.quantization.code_kinds import why_codes
from solutions.quantization.int4 import to_words
from yaie.core.quantized import Int4Weight

ORDER = "The first number lies in the lowest four bits of a word, the eighth in the highest."
SIGN = (
    "The sign of an int32 is its highest bit, and travels down when it is shifted: only the lowest four "
    "bits are a code, 0 to 15."
)
INPUTS = (
    "Codes are packed along the inputs: word [w, o] of qweight holds inputs 8 * w to 8 * w + 7 of "
    "output o."
)
OUTPUTS = (
    "Zeros are packed along the outputs: word [g, c] of qzeros holds outputs 8 * c to 8 * c + 7."
)
HALF = (
    "A symmetric grid spends all sixteen codes: 0 to 15 stand for -8 to 7 steps, and the largest weight "
    "is 7.5 of them, half a step from either end."
)
ZERO = "The zero is the code of 0.0: -low / scale, to the nearest whole number from 0 to 15."
GROUP = "Input i belongs to group i // group_size."
DENSE = (
    "The tensors of an Int4Weight are contiguous: the words of neighbouring outputs lie side by side, "
    "as a kernel reads them. A transposed tensor is copied into that order by .contiguous()."
)
TINY = (
    "A scale of a few times 2**-24, the smallest float16, is stored several percent off, so the range "
    "has more than 15 stored steps. A zero of 16 takes a fifth bit, its neighbour's in the word."
)


@task("19.2")
def test_a_symmetric_grid(part: ModuleType) -> None:
    """The largest weight is 7.5 steps, and 0.0 has code 8."""
    group = torch.tensor([[0.3, -0.75, 0.1], [15.0, 0.0, 2.0]])
    scales, zeros = watch(part.Int4(), "int4").grid(group)
    expect_close(scales, torch.tensor([0.1, 2.0]).half(), "scales", rtol=2e-3, why=HALF)
    expect_equal(zeros.tolist(), [8, 8], "zeros", why=HALF)
    expect_equal(zeros.dtype, torch.int32, "the dtype of zeros")


@task("19.2")
def test_a_grid_with_a_zero(part: ModuleType) -> None:
    """The range of a row, widened to hold 0, is spread over 0 to 15."""
    group = torch.tensor([[-1.0, 0.5], [-0.29, 1.21], [-0.33, 1.17], [3.0, 1.5], [-3.0, -1.5]])
    scales, zeros = watch(part.Int4(), "int4").grid(group, symmetric=False)
    right = torch.tensor([0.1, 0.1, 0.1, 0.2, 0.2]).half()
    expect_close(
        scales, right, "scales", rtol=2e-3, why="(high - low) / 15, of a range that holds 0."
    )
    expect_equal(zeros.tolist(), [10, 3, 3, 0, 15], "zeros", why=ZERO)


@task("19.2")
def test_a_grid_of_zeros(part: ModuleType) -> None:
    """An output whose weights are all 0 has a scale of 1."""
    for symmetric in (True, False):
        codec = watch(part.Int4(), "int4")
        scales, zeros = codec.grid(torch.zeros(2, 8), symmetric=symmetric)
        why = "A scale of 0 would be divided by: it becomes 1."
        expect_equal(scales.tolist(), [1.0, 1.0], "scales of nothing but 0", why=why)
        codes = codec.codes(torch.zeros(2, 8), scales, zeros)
        expect_equal(codes.tolist(), [[int(zeros[0])] * 8] * 2, "codes of 0.0")


@task("19.2")
def test_a_grid_of_tiny_weights(part: ModuleType) -> None:
    """The zero ends at 15 where the stored scale is smaller than the exact one."""
    scale = 10.45 * 2.0**-24
    group = torch.tensor([[-15.0, -4.0], [-11.0, 4.0], [4.0, 15.0]]) * scale
    scales, zeros = watch(part.Int4(), "int4").grid(group, symmetric=False)
    expect_equal(scales.tolist(), [10 * 2.0**-24] * 3, "scales", why=STORED)
    expect_equal(zeros.tolist(), [15, 11, 0], "zeros of weights of about 1e-6", why=TINY)


@task("19.2")
def test_codes_are_the_nearest(part: ModuleType) -> None:
    """A weight gets the nearest code, and one beyond the grid the last one."""
    scales, zeros = torch.tensor([0.1, 2.0]).half(), torch.tensor([8, 3], dtype=torch.int32)
    weight = torch.tensor([[0.04, 0.16, -0.26, 5.0], [-100.0, 1.2, -0.8, 22.5]])
    got = watch(part.Int4(), "int4").codes(weight, scales, zeros)
    why = why_codes(weight, got, (scales, zeros), 0, 15, "") if got.shape == weight.shape else ""
    expect_equal(got.tolist(), [[8, 10, 5, 15], [0, 4, 3, 14]], "codes", why=why)
    expect_equal(got.dtype, torch.int32, "the dtype of codes")


@task("19.2")
def test_the_order_of_codes_in_a_word(part: ModuleType) -> None:
    """Codes 1, 2, ..., 8 of one output make the word 0x87654321."""
    codes = torch.zeros(8, 8, dtype=torch.int32)
    codes[0] = torch.arange(1, 9)
    codes[5] = torch.tensor([15, 0, 0, 0, 0, 0, 0, 9])
    zeros = torch.zeros(1, 8, dtype=torch.int32)
    got = watch(part.Int4(), "int4").pack(codes, torch.ones(1, 8).half(), zeros)
    expect_equal(list(got.qweight.shape), [1, 8], "the shape of qweight of [8, 8]", why=INPUTS)
    words = [f"{word & 0xFFFFFFFF:08x}" for word in got.qweight[0].tolist()]
    right = ["87654321", *["00000000"] * 4, "9000000f", *["00000000"] * 2]
    is_turned = words == [
        f"{word & 0xFFFFFFFF:08x}" for word in to_words(codes.t()).t()[0].tolist()
    ]
    why = ORDER if [*map(sorted, words)] == [*map(sorted, right)] else INPUTS * is_turned
    expect_equal(words, right, "words of qweight", why=why)
    expect_equal(got.qweight.dtype, torch.int32, "the dtype of qweight")


@task("19.2")
def test_where_codes_and_zeros_lie(part: ModuleType) -> None:
    """Codes are packed along the inputs, and zeros along the outputs."""
    codes = torch.zeros(16, 24, dtype=torch.int32)
    codes[3, 17] = 5
    zeros = torch.zeros(3, 16, dtype=torch.int32)
    zeros[2, 13] = 7
    scales = torch.ones(3, 16).half()
    got = watch(part.Int4(), "int4").pack(codes, scales, zeros)
    shape, turned = list(got.qweight.shape), ([2, 24], [24, 2], [16, 3])
    why = INPUTS if shape in turned else ""
    expect_equal(shape, [3, 16], "the shape of qweight of [16, 24]", why=why)
    expect_equal(list(got.qzeros.shape), [3, 2], "the shape of qzeros of 16 outputs", why=OUTPUTS)
    found = [(w, o, hex(got.qweight[w, o])) for w, o in got.qweight.nonzero().tolist()]
    expect_equal(found, [(2, 3, "0x50")], "words of qweight with code 5 of input 17", why=INPUTS)
    found = [(g, c, hex(got.qzeros[g, c])) for g, c in got.qzeros.nonzero().tolist()]
    expect_equal(
        found, [(2, 1, "0x700000")], "words of qzeros with the zero of output 13", why=OUTPUTS
    )
    expect_equal(got.group_size, 8, "the group size of three groups of 24 inputs")
    for name in ("qweight", "scales", "qzeros"):
        tensor = getattr(got, name)
        problem = f"{name} is a transposed view: its strides are {list(tensor.stride())}"
        expect(tensor.is_contiguous(), problem, why=DENSE)


@task("19.2")
def test_unpacking_words(part: ModuleType) -> None:
    """Unpacking gives every code and zero back, those of a negative word too."""
    words = torch.tensor([0x76543210, 0x0EDCBA98 - 2**31], dtype=torch.int64).int()
    qweight = words[:, None].expand(2, 8).contiguous()
    qzeros = torch.tensor([[0x01234567], [-1]], dtype=torch.int32)
    weight = Int4Weight(qweight, torch.ones(2, 8).half(), qzeros, 8)
    codes, zeros = watch(part.Int4(), "int4").unpack(weight)
    row = [*range(8), 8, 9, 10, 11, 12, 13, 14, 8]
    first = codes[0].tolist() if codes.shape == (8, 16) else row
    is_order = [sorted(first[:8]), sorted(first[8:])] == [sorted(row[:8]), sorted(row[8:])]
    is_sign = bool((codes < 0).any() | (codes > 15).any())
    why = SIGN if is_sign else ORDER if is_order else ""
    expect_equal(codes.tolist(), [row] * 8, "codes", why=why)
    why = SIGN if bool((zeros < 0).any() | (zeros > 15).any()) else OUTPUTS
    expect_equal(zeros.tolist(), [[7, 6, 5, 4, 3, 2, 1, 0], [15] * 8], "zeros", why=why)


@task("19.2")
def test_dequantizing_takes_the_group_of_each_input(part: ModuleType) -> None:
    """Scale and zero are those of the input's group and of the output."""
    qweight = torch.full((2, 8), -1, dtype=torch.int32)
    scales = torch.tensor([[1.0], [100.0]]) * torch.arange(1, 9).float()
    qzeros = torch.tensor([[0], [0x76543210]], dtype=torch.int32)
    got = watch(part.Int4(), "int4").dequantize(Int4Weight(qweight, scales.half(), qzeros, 8))
    output = torch.arange(8).float()
    right = torch.stack([15 * (output + 1), 100 * (output + 1) * (15 - output)], dim=1)
    in_turn = right.repeat(1, 8)
    right = right.repeat_interleave(8, dim=1)
    why = GROUP
    if got.shape == right.shape and torch.allclose(got, in_turn):
        why = (
            f"These are the scales and zeros of groups i % 2: input 1 has those of group 1. {GROUP}"
        )
    expect_close(got, right, "codes of 15, as numbers [output, input]", why=why)


@task("19.2")
def test_each_group_has_its_grid(part: ModuleType) -> None:
    """Small weights keep their precision beside a group of large ones."""
    for symmetric in (True, False):
        weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
        weight[:, 16:24] *= 1000
        start_script()
        codec = watch(part.Int4(), "int4")
        got = codec.quantize(weight, 8, symmetric=symmetric)
        expect_equal(list(got.scales.shape), [4, 8], "the shape of scales of [8, 32]", why=GROUP)
        back = codec.dequantize(got)
        for group in range(4):
            inputs = slice(8 * group, 8 * group + 8)
            error = (back - weight)[:, inputs].abs().amax(dim=1)
            most = 1.01 * got.scales[group].float()
            output = int((error - most).argmax())
            expect(
                bool((error <= most).all()),
                f"a weight of output {output} and an input of 8 * {group} to 8 * {group} + 7 comes back "
                f"{float(error[output]):.3g} off; a step of its group is {float(most[output]):.3g}",
                why=GROUP,
            )
            widest = weight[:, inputs].abs().amax(dim=1) / 7.5
            if symmetric:
                expect_close(
                    got.scales[group], widest.half(), f"scales of group {group}", rtol=2e-3
                )


@task("19.2")
@examples(25)
@given(
    st.integers(1, 2), st.integers(1, 3), st.sampled_from([8, 16, 24]), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
def test_any_weight(
    part: ModuleType, out: int, groups: int, size: int, symmetric: bool, seed: int
) -> None:
    """Of any weight every code is the nearest on the grid of its group, before and after packing."""
    weight = weights(8 * out, groups * size, seed)
    codec = watch(part.Int4(), "int4")
    got = codec.quantize(weight, size, symmetric=symmetric)
    expect_equal(got.group_size, size, "the group size")
    expect_equal(got.scales.dtype, torch.float16, "the dtype of scales", why=STORED)
    codes, zeros = codec.unpack(got)
    for group, part_of in enumerate(weight.split(size, dim=1)):
        of_group = codes[:, size * group : size * (group + 1)]
        grid = got.scales[group], zeros[group]
        expect_nearest(part_of, of_group, grid, 0, 15, f"group {group}")
    again = codec.pack(codes, got.scales, zeros)
    expect_equal(again.qweight.tolist(), got.qweight.tolist(), "qweight, unpacked and packed again")
    expect_equal(again.qzeros.tolist(), got.qzeros.tolist(), "qzeros, unpacked and packed again")
    steps = codes.double().unflatten(1, (-1, size)) - zeros.t().double()[..., None]
    right = (steps * got.scales.double().t()[..., None]).flatten(1)
    expect_close(codec.dequantize(got), right, "there and back", rtol=1e-5)
