"""Tasks 15.1 and 15.2: tiles, products of tiles, and the softmax of rows that come tile by tile."""

import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close, expect_equal, task
from grader.kit.cuda_watch import watching
from grader.kit.kernels import random
from grader.kit.recomputed import Kinds, fitting
from grader.kit.script import off_the_record
from grader.suites.cuda_flash_attention.bench import (
    expect_wide_offsets,
    probe_products,
    probe_softmax,
    probe_sums,
    probe_tile,
)
from grader.suites.cuda_flash_attention.mistakes import (
    lanes_that_know,
    lse_kinds,
    rounded_columns,
    softmax_kinds,
)
from yaie.cuda.on_cpu import Launch

INF = math.inf


@task("15.1")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tile_is_copied(part: ModuleType, dtype: torch.dtype) -> None:
    """Every element of the rows lands in its place of the tile, as float."""
    source = random(32, 32, seed=1, dtype=dtype)
    why = "128 threads copy 32 x 32 elements, 4 at a time: each thread has several turns."
    tile = probe_tile(part, source, 32, 32, why)
    expect_close(tile, source.float(), f"a tile of {dtype}", why=why)


def misread(tile: Tensor, right: Tensor, source: Tensor, dim: int) -> str:
    """Which distance its rows were read at, if it is one that is not the stride; else ""."""
    memory, rows = source.flatten(), int((right != 0).any(dim=1).sum())

    def apart(step: int) -> Callable[[], Tensor]:
        def compute() -> Tensor:
            read = torch.zeros_like(right)
            read[:rows, :dim] = memory.as_strided((rows, dim), (step, 1), memory.storage_offset())
            return read

        return compute

    kinds = {
        f"Rows were read {name} elements apart. The next row begins `stride` elements on.": apart(
            step
        )
        for name, step in (("dim", dim), ("DIM", 32), ("DIM + PAD", 36))
    }
    return fitting(tile, right, kinds, 1e-6)


def unwritten(part: ModuleType) -> str:
    """Whether rows or columns of a tile are left: each is tried alone."""
    full = random(32, 32, seed=2)
    left = []
    for rows, dim in ((5, 32), (32, 24)):
        try:
            with off_the_record():
                probe_tile(part, full, rows, dim)
        except Mismatch:
            left.append(rows < 32)
    if left == [True]:
        return "With all 32 rows and a dim of 24 nothing is left: rows from `rows` on are not written. "
    if left == [False]:
        return (
            "With 5 rows and a dim of 32 nothing is left: columns from `dim` on are not written. "
        )
    return ""


@task("15.1")
def test_what_does_not_exist_becomes_zero(part: ModuleType) -> None:
    """Rows from `rows` on and columns from `dim` on are not read, and are zero in the tile."""
    source = torch.full((32, 40), math.nan)
    source[:5, :24] = random(5, 24, seed=2)
    right = torch.zeros(32, 32)
    right[:5, :24] = source[:5, :24]
    why = (
        "What does not exist is zero in the tile, and not what lay there: a product with NaN would "
        "spoil even what is multiplied by 0."
    )
    try:
        tile = probe_tile(part, source, 5, 24, why)
    except Mismatch as error:
        error.why = f"{unwritten(part)}{why}"
        raise
    exist = right != 0
    told = why if torch.equal(tile[exist], right[exist]) else misread(tile, right, source, 24)
    expect_close(tile, right, "a tile of which 5 rows of 24 elements exist", why=told)
    expect_close(
        probe_tile(part, source[:5], 0, 24, why),
        torch.zeros(32, 32),
        "a tile without rows",
        why=why,
    )


@task("15.1")
def test_rows_lie_a_stride_apart(part: ModuleType) -> None:
    """The next row begins `stride` elements on: heads lie between two tokens of one head."""
    source = random(32, 3, 16, seed=3)
    right = torch.zeros(32, 32)
    right[:, :16] = source[:, 1]
    why = "q.stride(token) is heads * dim here, not dim."
    tile = probe_tile(part, source[:, 1], 32, 16)
    told = misread(tile, right, source.flatten()[16:], 16) or why
    expect_close(tile, right, "the tile of head 1 of 3", why=told)


@task("15.1")
def test_offsets_are_64_bits_wide(part: ModuleType) -> None:
    """The distance of a row from the first one, its number times the stride, may pass 2**31."""
    expect_wide_offsets(part)


@task("15.1")
def test_rows_times_rows(part: ModuleType) -> None:
    """out[r][c] is the product of row r * 8 + y of a with row c * 16 + x of b."""
    a, b = random(32, 32, seed=4), random(32, 32, seed=5)
    one = torch.zeros(32, 32)
    one[9, 3] = 1.0
    marks = torch.arange(32.0)[:, None].expand(32, 32).contiguous()
    why = (
        "Thread (y, x) has rows y, y + 8, ... and columns x, x + 16, ...: the sum goes over all 32 "
        "elements of both rows."
    )
    got = probe_products(part, one, marks)
    expect_close(
        got, one @ marks.T, "row 9 of a is 1 in place 3, row j of b is j everywhere", why=why
    )
    got = probe_products(part, a, b)
    expect_close(got, a @ b.T, "a times b transposed", rtol=1e-4, atol=1e-4, why=why)


@task("15.1")
def test_weights_times_rows(part: ModuleType) -> None:
    """acc[r][c] gains the sum over j of weights[row][j] * rows[j][column]."""
    weights, rows = random(32, 16, seed=6), random(16, 32, seed=7)
    one = torch.zeros(32, 16)
    one[9, 3] = 1.0
    why = (
        "Row i of acc gains the rows, weighted by row i of the weights; the next row of weights begins "
        "COUNT + PAD floats on."
    )
    kinds: Kinds = {
        "acc held 1 before the call, and that is lost: the sums begin with what acc holds, for earlier "
        "tiles are in it.": lambda: one @ rows,
        "acc is as it was before the call: nothing was added.": lambda: torch.ones(32, 32),
        "Each product was subtracted.": lambda: 1 - one @ rows,
    }
    got = probe_sums(part, one, rows, why)
    right = 1 + one @ rows
    told = fitting(got, right, kinds, 1e-6) or why
    expect_close(got, right, "1, and row 9 of the weights picks row 3", why=told)
    got = probe_sums(part, weights, rows, why)
    expect_close(
        got, 1 + weights @ rows, "1, and weights times rows", rtol=1e-4, atol=1e-4, why=why
    )


@task("15.1")
def test_float32_stays_float32(part: ModuleType) -> None:
    """Elements of float32 keep all of their digits in the tile, and small weights count in products."""
    generator = torch.Generator().manual_seed(9)
    source = torch.randn(32, 32, generator=generator)
    why = "These numbers have 24 binary digits, of which no 16-bit type holds more than 11."
    tile = probe_tile(part, source, 32, 32, why)
    told = rounded_columns(tile, source) or why
    expect_close(tile, source, "a tile of float32", rtol=0, atol=0, why=told)
    products = probe_products(part, source, source)
    expect_close(products, source @ source.T, "a product", rtol=1e-5, atol=1e-5, why=why)
    weights = 1e-5 * torch.rand(32, 16, generator=generator)
    got = probe_sums(part, weights, 1e4 * source[:16], why) - 1
    why = "Weights of 0.00001 meet rows of 10,000 here: each of them counts."
    right = weights @ (1e4 * source[:16])
    expect_close(got, right, "sums of small weights", rtol=1e-4, atol=1e-5, why=why)


@task("15.1")
def test_what_is_read_is_used_again(part: ModuleType) -> None:
    """A load or store moves four elements, and what was read serves several products of its thread."""
    a, b = random(32, 32, seed=4), random(32, 32, seed=5)
    loads = launches_of(lambda: probe_products(part, a, b)).shared_loads.count
    expect(
        loads < 10_000,
        f"rows_times_rows: {loads:,} loads from shared memory for 32 x 32 products",
        why=FOUR_AT_A_TIME.format("6,144") if loads < 30_000 else KEPT_IN_REGISTERS,
    )
    loads = launches_of(lambda: probe_sums(part, a[:, :16], b[:16])).shared_loads.count
    expect(
        loads < 10_000,
        f"weights_times_rows: {loads:,} loads from shared memory for 32 x 32 sums of 16",
        why=f"{FOUR_AT_A_TIME.format('6,144')} Here those are the weights of one row; the rows' "
        "elements come one by one, each for all of the thread's weights."
        if loads < 30_000
        else KEPT_IN_REGISTERS,
    )
    source = random(32, 32, seed=1)
    work = launches_of(lambda: probe_tile(part, source, 32, 32))
    expect(
        work.global_loads.count == 256 and work.global_loads.efficiency > 0.9,
        f"load_tile: {work.global_loads.count:,} loads in {work.global_loads.sectors} sectors of 32 "
        "bytes",
        why="1,024 elements are 256 loads of four; neighbours load neighbours: 128 sectors.",
    )
    passes = work.shared_stores.extra_passes
    expect(
        passes == 0,
        f"load_tile: {work.shared_stores.count:,} stores to the tile take {passes:,} extra passes",
        why="Lanes that hold four neighbours each and store one float of them at a time write every "
        "fourth word: four lanes to a bank. One float4 store of 16 bytes has no conflict.",
    )


KEPT_IN_REGISTERS = (
    "A thread has 4 x 2 of the results: for each step 4 + 2 numbers, once in registers, give 8 "
    "multiplications. Read again for each multiplication, they are two loads at a time."
)
FOUR_AT_A_TIME = (
    "Registers serve several products here, but each load brings one element: a float4 brings four "
    "neighbours of a row, {} loads in all."
)


def launches_of(call: Callable[[], object]) -> Launch:
    """The counts of the one kernel that a call launches."""
    with watching() as launches:
        call()
    return launches[0]


def exact_rows(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lse, sum relative to the maximum, sum of the first columns' weights relative to it), float64."""
    joined = scores.double().transpose(0, 1).flatten(1)
    top = joined.amax(1)
    safe = top.masked_fill(top == -INF, 0.0)
    first = (scores[:, :, 0].double() - safe).exp().sum(0)
    return joined.logsumexp(1), (joined - safe[:, None]).exp().sum(1), first


LSE = (
    "The weights and share are right, so maximum and sum are: lse is maximum + log(sum), the natural "
    "logarithm."
)


def expect_softmax(part: ModuleType, scores: Tensor, what: str, why: str) -> None:
    """Weights, share, acc and lse of rows after these tiles of scores."""
    share, lse, acc, weights = probe_softmax(part, scores)
    exact_lse, total, first = exact_rows(scores)
    tops = scores.double().amax(dim=(0, 2))
    right = (scores[-1].double() - tops.masked_fill(tops == -INF, 0.0)[:, None]).exp()
    expect_close(weights, right, f"the weights that update leaves, {what}", rtol=1e-4, why=why)
    whole = torch.where(total > 0, 1 / total, 0.0)
    sums, accs = softmax_kinds(scores)
    told = fitting(share, whole, sums, 1e-4) or lanes_that_know(share, whole) + why
    expect_close(share, whole, f"share (1 / sum), {what}", rtol=1e-4, why=told)
    told = fitting(acc, first, accs, 1e-4) or why
    expect_close(acc, first, f"acc, {what}", rtol=1e-4, why=told)
    told = fitting(lse, exact_lse, lse_kinds(total, exact_lse), 1e-4) or LSE
    expect_close(lse, exact_lse, f"lse, {what}", rtol=1e-4, atol=1e-4, why=told)


@task("15.2")
def test_one_tile(part: ModuleType) -> None:
    """After one tile: weights are exp(score - the row's maximum), the sum is theirs, over 16 lanes."""
    scores = random(1, 32, 32, seed=8, scale=2.0)
    why = (
        "A row's 32 scores lie in 16 lanes, 2 in each: maximum and sum go over the lane's own scores, "
        "then over the lanes. The other 16 lanes of the warp have another row."
    )
    expect_softmax(part, scores, "one tile", why)


@task("15.2")
def test_the_maximum_may_rise(part: ModuleType) -> None:
    """A larger maximum rescales the sum and acc of earlier tiles."""
    scores = random(3, 32, 32, seed=9) + torch.tensor([0.0, 3.0, 6.0])[:, None, None]
    why = "sum and acc are relative to the old maximum: both are multiplied by exp(old - new)."
    expect_softmax(part, scores, "three tiles with rising scores", why)


@task("15.2")
def test_the_maximum_may_stay(part: ModuleType) -> None:
    """A tile of smaller scores leaves the maximum as it is."""
    scores = random(3, 32, 32, seed=10) - torch.tensor([0.0, 4.0, 8.0])[:, None, None]
    why = "The new maximum is the larger of the old one and the tile's."
    expect_softmax(part, scores, "three tiles with falling scores", why)


@task("15.2")
def test_the_maximum_may_rise_a_little(part: ModuleType) -> None:
    """However little the maximum rises, what was summed before is rescaled."""
    steps = torch.tensor([0.0, 0.004, 0.008, 0.012])
    scores = random(1, 32, 32, seed=9).expand(4, 32, 32) + steps[:, None, None]
    why = "sum and acc are relative to the maximum: a rise of 0.004 left out is an error of 0.4%."
    expect_softmax(part, scores, "four tiles, each by 0.004 above the last", why)


@task("15.2")
def test_large_scores(part: ModuleType) -> None:
    """Scores of 300 are fine: exp is only taken of differences."""
    scores = random(2, 32, 32, seed=11) + 300.0
    expect_softmax(part, scores, "scores about 300", "exp(300) is infinite in float32.")


@task("15.2")
def test_scores_far_below_0(part: ModuleType) -> None:
    """Scores of -300: the maximum is the largest of the scores, even if that is far below 0."""
    scores = random(2, 32, 32, seed=13) - 300.0
    why = "exp(-300 - 0) is 0: a maximum that begins at 0, in a lane or in a row, is none of its scores."
    expect_softmax(part, scores, "scores about -300", why)


@task("15.2")
def test_tiles_without_a_visible_key(part: ModuleType) -> None:
    """Rows that see nothing in a tile, at first or at all, hold no NaN: share 0 and lse -infinity."""
    scores = random(2, 32, 32, seed=12)
    scores[0, ::2] = -INF
    scores[:, 5] = -INF
    share, lse, acc, weights = probe_softmax(part, scores)
    why = "(-inf) - (-inf) is NaN: a finite first maximum avoids it."
    seen = {"share": float(share[5]), "lse": float(lse[5]), "acc": float(acc[5])}
    if not any(map(math.isnan, seen.values())):
        why = "Its sum is 0: share is 0 then, not 1 / 0, and lse is -infinity."
    right = {"share": 0.0, "lse": -INF, "acc": 0.0}
    expect_equal(seen, right, "a row that saw no key in two tiles", why=why)
    why = "(-inf) - (-inf) is NaN: a finite first maximum avoids it."
    expect(not bool(weights.isnan().any()), "some weights are NaN", why=why)
    rows = [row for row in range(32) if row != 5]
    exact_lse, total, first = exact_rows(scores[:, rows])
    expect_close(lse[rows], exact_lse, "lse, first tile hidden from even rows", atol=1e-4, why=why)
    expect_close(share[rows], 1 / total, "share, first tile hidden from even rows", rtol=1e-4)
    expect_close(acc[rows], first, "acc, first tile hidden from even rows", rtol=1e-4)
