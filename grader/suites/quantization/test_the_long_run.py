"""Beyond one call and a small weight: results that stay, nothing left behind, numbers near the ends."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close, expect_equal, note, start_script, task
from grader.kit.kernels import expect_near
from grader.kit.storage import expect_calls_apart, expect_nothing_is_kept
from grader.suites.quantization.bench import given_words, inputs_of, packed, weights
from grader.suites.quantization.code_kinds import why_back
from grader.suites.quantization.test_gptq import codes_of
from grader.suites.quantization.test_hessian import drawn, hessian_of
from grader.suites.quantization.test_kv_pool import (
    CPU,
    HEAD,
    MOVED,
    SLOT,
    expect_back,
    expect_rounded,
)
from grader.suites.quantization.test_kv_pool import STORED as KV_STORED
from grader.suites.quantization.test_products import exact4, exact8
from solutions import quantization as reference
from yaie.core.batch import KVLayerSpec
from yaie.core.quantized import Int4Weight, Int8Weight

OUTPUTS = 4096
MANY = 1001
"""More pieces than a cap of a thousand lets through."""
ZERO = (
    "The zero is -low over the scale as it is stored, all of its digits, and then rounded: a scale of "
    "fewer digits gives some outputs the neighbouring code."
)
ALL = "A layer has as many inputs and outputs as its model gives it: thousands are usual."


def why_last(right: Tensor) -> str:
    """ALL, if what is right [..., outputs] is right up to an output, and wrong from there on."""
    rows = right.flatten(0, -2)
    ends = rows.int().diff(dim=1)
    return ALL if not bool((ends > 0).any()) and bool(rows[:, 0].all()) else ""


def tensors(weight: Int8Weight | Int4Weight) -> list[Tensor]:
    names = ("codes", "qweight", "scales", "zeros", "qzeros")
    return [x for name in names if (x := getattr(weight, name, None)) is not None]


def expect_zeros(zeros: Tensor, exact: Tensor, what: str) -> None:
    """Each the whole number next to the exact one [out], float64; where two are as near, either."""
    off = (zeros.double() - exact).abs()
    if bool((off > 0.5 + 1e-4).any()):
        at = int(off.argmax())
        expect_equal(int(zeros[at]), round(float(exact[at])), f"{what}: zero {at}", why=ZERO)


@task("19.1")
def test_zeros_of_many_rows(part: ModuleType) -> None:
    """Of thousands of rows every zero is the nearest to its exact place."""
    weight = weights(OUTPUTS, 4)
    got = part.Int8().quantize(weight, symmetric=False)
    low = weight.amin(dim=1).clamp(max=0).double()
    exact = (-128 - low / got.scales.double()).clamp(-128, 127)
    expect_zeros(got.zeros, exact, f"a weight of {OUTPUTS} rows")


@task("19.1")
def test_int8_of_many_calls(part: ModuleType) -> None:
    """A weight and its numbers are made for their call, and nothing is left behind."""
    codec = part.Int8()
    given = [
        [reference.Int8().quantize(weights(2, 8, seed=n), symmetric=s) for s in (True, False)]
        for n in range(4)
    ]
    expect_calls_apart(
        {
            "quantize": lambda n: [
                tensors(codec.quantize(weights(2, 8, seed=n), symmetric=s)) for s in (True, False)
            ],
            "dequantize": lambda n: [codec.dequantize(one) for one in given[n]],
        }
    )


@task("19.2")
def test_a_symmetric_grid_of_tiny_weights(part: ModuleType) -> None:
    """The smallest scale that float16 can hold is a scale, and none of 0."""
    scale = 2.0**-24
    group = torch.tensor([[7.5, 1.0], [-30.0, 15.0]]) * scale
    scales, _ = part.Int4().grid(group)
    why = (
        "A scale of 0 alone becomes 1: a small one is compared with 0 itself, after it is rounded."
    )
    expect_equal(scales.tolist(), [scale, 4 * scale], "scales of weights of about 1e-6", why=why)


@task("19.2")
def test_zeros_of_many_outputs(part: ModuleType) -> None:
    """Of thousands of outputs every zero is the nearest to its exact place."""
    group = weights(OUTPUTS, 4)
    scales, zeros = part.Int4().grid(group, symmetric=False)
    low = group.amin(dim=1).clamp(max=0).double()
    exact = (-low / scales.double()).clamp(0, 15)
    expect_zeros(zeros, exact, f"a group of {OUTPUTS} outputs")


@task("19.2")
def test_many_groups(part: ModuleType) -> None:
    """A weight may have more than a thousand groups of inputs."""
    weight = weights(8, 8 * MANY)
    note(f"# a weight [8, {8 * MANY}], in groups of 8")
    codec = part.Int4()
    got = codec.quantize(weight, 8, symmetric=False)
    expect_equal(list(got.scales.shape), [MANY, 8], "the shape of scales")
    error = (codec.dequantize(got) - weight).abs().unflatten(1, (-1, 8)).amax(dim=2)
    worse = error > 1.01 * got.scales.t().float()
    expect(
        not bool(worse.any()),
        f"{int(worse.sum())} of {8 * MANY} groups are further off than a step, there and back",
        why=why_last(~worse),
    )


@task("19.2")
def test_int4_of_many_calls(part: ModuleType) -> None:
    """Grids, codes and words are made for their call, and nothing is left behind."""
    codec = part.Int4()
    given = [packed(8, 8, 8, seed=n) for n in range(4)]

    def pack(number: int) -> list[Tensor]:
        codes = (torch.arange(64, dtype=torch.int32).view(8, 8) + number) % 16
        return tensors(codec.pack(codes, torch.full((1, 8), 0.5 * number).half(), codes[:1]))

    def codes(number: int) -> Tensor:
        zeros = torch.arange(8, dtype=torch.int32)
        return codec.codes(weights(8, 4, seed=number), torch.ones(8).half(), zeros)

    expect_calls_apart(
        {
            "grid": lambda n: [codec.grid(weights(8, 8, n), symmetric=s) for s in (True, False)],
            "codes": codes,
            "pack": pack,
            "unpack": lambda n: codec.unpack(given[n]),
            "quantize": lambda n: tensors(codec.quantize(weights(8, 8, n), 8)),
            "dequantize": lambda n: codec.dequantize(given[n]),
        }
    )


@task("19.3")
def test_products_of_many_outputs_and_groups(part: ModuleType) -> None:
    """A weight may have more than a thousand pieces of 64 outputs, or groups of inputs."""
    out = 64 * MANY + 3
    note(f"# INT8: {out} outputs of 2 inputs")
    rows = torch.arange(out)
    codes = torch.stack([rows % 255 - 127, rows % 11], dim=1).to(torch.int8)
    scales, zeros = (1 + rows % 3).half(), (rows % 256 - 128).int()
    weight = Int8Weight(codes, scales, zeros)
    x = torch.tensor([[1.0, 2.0]])
    got = part.Int8().product(x, weight)
    right = exact8(x, weight)
    why = why_last(torch.isclose(got.double(), right)) if got.shape == right.shape else ""
    expect_near(got, right, x.dtype, "the product", why=why)
    start_script()
    note(f"# INT4: {MANY} groups of 8 inputs")
    numbers = torch.arange(8 * MANY).view(MANY, 8)
    words, x = Int4Weight(
        (numbers * 7_654_321 % (1 << 31)).int(),
        (1 + numbers % 7).half(),
        (numbers[:, :1] * 1_234_567 % (1 << 31)).int(),
        8,
    ), inputs_of(1, 8 * MANY)  # fmt: skip
    with given_words(part):
        got = part.Int4().product(x, words)
    right = exact4(x, words)
    size = float(right.abs().max())
    first = exact4(x * (torch.arange(8 * MANY) < 8 * (MANY - 1)), words)
    is_first = got.shape == first.shape and torch.allclose(
        got.double() / size, first / size, atol=1e-6
    )
    why = f"The product is that of the first {MANY - 1} groups. {ALL}" if is_first else ""
    expect_near(got / size, right / size, x.dtype, "the product", why=why)


@task("19.3")
def test_products_of_many_calls(part: ModuleType) -> None:
    """A product is made for its call, and nothing is left behind."""
    int8, int4 = part.Int8(), part.Int4()
    wide, narrow = reference.Int8().quantize(weights(8, 16), symmetric=False), packed(8, 16, 8)
    with given_words(part):
        expect_calls_apart(
            {
                "Int8.product": lambda n: int8.product(inputs_of(2, 16, seed=n), wide),
                "Int4.product": lambda n: int4.product(inputs_of(2, 16, seed=n), narrow),
            }
        )


@task("19.4")
def test_hessians_of_many_calls(part: ModuleType) -> None:
    """A factor is made for its call; of the inputs a Hessian keeps their sum alone."""
    gptq, hessian = part.Gptq(reference.Int4()), part.Hessian(4)
    expect_calls_apart({"factor": lambda n: gptq.factor(hessian_of(drawn(9, 4, n)))})
    expect_nothing_is_kept({"Hessian.add": lambda: hessian.add(torch.ones(3, 4))})


@task("19.5")
def test_many_inputs(part: ModuleType) -> None:
    """A block may have more than a thousand inputs, and a weight more than a thousand blocks."""
    inputs = 8 * (MANY // 8 + 1)
    weight, hessian = weights(8, inputs), torch.eye(inputs)
    right = reference.Int4().quantize(weight, 8)
    loop = part.Gptq(reference.Int4())
    # No error moves: U of a Hessian of ones on the diagonal is the same.
    loop.factor = lambda hessian, damping=0.01: hessian
    for block in (inputs, 1):
        start_script()
        note(f"# {inputs} inputs that are independent, damping 0, in blocks of {block}")
        got = loop.quantize(weight, hessian, 8, block=block, damping=0.0)
        wrong = (codes_of(got) != codes_of(right)).any(dim=0).nonzero().flatten().tolist()
        problem = f"{len(wrong)} of {inputs} inputs have other codes, the first {wrong[:1]}"
        nearest = "Independent inputs are rounded to the nearest."
        is_last = wrong == list(range(inputs - len(wrong), inputs)) and len(wrong) < inputs
        expect(not wrong, problem, why=f"{ALL} {nearest}" if is_last else nearest)


@task("19.5")
def test_gptq_of_many_calls(part: ModuleType) -> None:
    """A weight is made for its call, and nothing is left behind of it."""
    loop, hessian = part.Gptq(reference.Int4()), hessian_of(drawn(30, 8))
    loop.factor = reference.Gptq(reference.Int4()).factor
    expect_calls_apart(
        {"quantize": lambda n: tensors(loop.quantize(weights(8, 8, n), hessian, 8, block=4))}
    )


def pool_of(part: ModuleType, layers: int, blocks: int, size: int, host: int = 0) -> Any:
    return part.Int8KVPool([KVLayerSpec(1, 4)] * layers, blocks, size, torch.float32, CPU, host)


@task("19.7")
def test_heads_of_any_size(part: ModuleType) -> None:
    """A scale has the range of bfloat16: heads of 1e-30 and of 1e9 keep their precision."""
    pool = pool_of(part, 1, 8, 1)
    sizes = 10.0 ** torch.tensor([-30, -12, -7, -5, 0, 5, 7, 9])
    k = torch.tensor([[1.0, -0.7, 0.3, 0.02]]) * sizes[:, None, None]
    pool.write(0, k, 2 * k, torch.arange(8))
    note("# k: heads of (1, -0.7, 0.3, 0.02) times 1e-30, 1e-12, ..., 1e9, one a token")
    note("pool.write(0, k, 2 * k, torch.arange(8))")
    tables = torch.arange(8)[:, None]
    note("pool.gather(0, torch.arange(8)[:, None])    # each block has one slot")
    found = pool.gather(0, tables)[0][:, 0]
    for at, (size, got, right) in enumerate(zip(sizes.tolist(), found, k, strict=True)):
        unit, name = torch.tensor(1 / size), f"K of a head of {size:.0e}, in units of that"
        try:
            expect_rounded(got * unit, right * unit, name, "")
        except Mismatch as error:
            slot = torch.tensor([at])
            error.why = why_back(pool, 0, 0, slot, right[None], got[None], (HEAD, SLOT, KV_STORED))
            raise


@task("19.7")
def test_thousands_of_tokens(part: ModuleType) -> None:
    """A prompt of more than 4,096 tokens is written at once, and gathered as one table."""
    count = 4100
    pool = pool_of(part, 1, count // 2, 2)
    k = weights(count, 4).view(count, 1, 4)
    pool.write(0, k, -k, torch.arange(count))
    keys, values = pool.gather(0, torch.arange(count // 2)[None])
    for name, got, right in (("K", keys, k), ("V", values, -k)):
        what = f"{name} of {count} tokens"
        expect_back(pool, 0, name, torch.arange(count), got[0], right, what)


@task("19.7")
def test_blocks_move_in_every_layer(part: ModuleType) -> None:
    """However many layers there are, each has its blocks moved."""
    pool = pool_of(part, MANY, 2, 1)
    note(f"# a pool of {MANY} layers, copy_blocks([(0, 1)])")
    k = torch.full((1, 1, 4), 127.0)
    for layer in (0, MANY - 1):
        pool.write(layer, k, k, torch.tensor([0]))
    pool.copy_blocks([(0, 1)])
    for layer in (0, MANY - 1):
        got = pool.gather(layer, torch.tensor([[1]]))[0][0]
        expect_close(got, k, f"K of layer {layer}, block 1", why=MOVED)


@task("19.7")
def test_gathers_of_many_calls(part: ModuleType) -> None:
    """What is gathered stays while blocks are written, and nothing is left behind."""
    pool = pool_of(part, 1, 4, 2, 1)
    tables = torch.tensor([[0, 1]])

    def write(number: int) -> None:
        k = weights(4, 4, seed=number).view(4, 1, 4)
        pool.write(0, k, 2 * k, torch.arange(4))

    def gather(number: int) -> Any:
        write(number)
        return pool.gather(0, tables)

    expect_calls_apart({"write and gather": gather})
