"""Task 14.5: RoPE in place, pair by pair."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import Mismatch, examples, expect, expect_close, expect_equal, start_script, task
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_whole_sectors,
    launches_of,
    work_of,
)
from grader.kit.kernels import expect_near, random, rope, rotary_tables
from grader.suites.cuda_ops.exact import (
    BF16,
    F32,
    ODD,
    expect_launched,
    expect_loads_in_packs,
    expect_packed,
    expect_two_warps,
    half_told,
    heads,
    heads_left,
    kernels_of,
    laid,
    only,
    shifted,
    stays,
    told_half,
    what_is_left,
)

QUARTER = (
    torch.tensor([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]),
    torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]),
)
"""cos and sin: pair 0 turns by 0, 90 and 180 degrees at positions 0, 1 and 2, pair 1 never."""
HALVES = "A pair is (x[0], x[2]) here. By 90 degrees (1, 3) becomes (-3, 1)."
ONCE = (
    "Each pair of each head is turned by one thread, once, by the angles of positions[token]: left out "
    "it stays, and turned again it stands at twice its angle."
)
NO_PACK = (
    "A head with fewer pairs than a pack has room for has no pack of pairs: half, in bytes, belongs to "
    "what packs_fit is asked."
)
STRIDES = "Token t of q begins at t * q_stride, token t of k at t * k_stride: both are views."


def turn(part: ModuleType, q: Tensor, k: Tensor, positions: list[int], *tables: Tensor) -> None:
    """Turns q and k where they lie."""
    pair = kernels_of(part).rope(q, k, torch.tensor(positions, dtype=torch.int64), *tables)
    same = isinstance(pair, tuple) and len(pair) == 2 and pair[0] is q and pair[1] is k
    expect(same, "rope does not return q and k, which it has turned in place")


def how_turned(x: Tensor, got: Tensor, right: Tensor, where: Tensor, *tables: Tensor) -> str:
    """What became of the first head that is wrong, if it is one of the usual mistakes; else ""."""
    wrong = (~torch.isclose(got.double(), right, rtol=0.02, atol=0.02)).any(dim=-1)
    token, head = (int(i) for i in wrong.nonzero()[0])
    place = torch.arange(len(x)) % len(tables[0])
    turned = {
        "was not turned": x.double(),
        "was turned by the angles of its place in the batch, not of its position": rope(
            x, place, *tables
        ),
        "was turned twice": rope(right, where, *tables),
        "was turned the other way round (the minus goes to the first half)": rope(
            x, where, tables[0], -tables[1]
        ),
        "was turned with neighbours for a pair: x[i] belongs to x[i + half], not the neighbours to each "
        "other": with_neighbours(x, where, *tables),
        "has a second half that was computed from the first half's new values, and both come from the "
        "old values": from_new(x, where, *tables),
        "was turned as if half were half of the head": rope(x, where, *widened(x, *tables)),
    }

    def near(value: Tensor) -> Tensor:
        return torch.isclose(got.double(), value, rtol=0.02, atol=0.02)[token, head]

    for told, value in turned.items():
        if bool(near(value).all()):
            return f"head {head} of token {token} {told}"
    for told, value in turned.items():
        # A head may be wrong in part: whatever is wrong must be what this mistake gives.
        if bool((near(value) | near(right)).all()):
            return f"a part of head {head} of token {token} {told}"
    return ""


def with_neighbours(x: Tensor, where: Tensor, *tables: Tensor) -> Tensor:
    """x turned by pairs (2 i, 2 i + 1) in place of (i, i + half)."""
    half = tables[0].shape[1]
    order = torch.arange(2 * half).view(half, 2).T.flatten()
    out = x.double().clone()
    turned = rope(x[..., order], where, *tables)
    out[..., order] = turned
    return out


def from_new(x: Tensor, where: Tensor, *tables: Tensor) -> Tensor:
    """x turned in place, the first half before the second one reads it."""
    half, (cos, sin) = tables[0].shape[1], (t.double()[where][:, None] for t in tables)
    out = rope(x, where, *tables)
    out[..., half : 2 * half] = x.double()[..., half : 2 * half] * cos + out[..., :half] * sin
    return out


def widened(x: Tensor, *tables: Tensor) -> list[Tensor]:
    """Tables for half of the whole head, as far as they go: the rest does not turn."""
    missing = x.shape[-1] // 2 - tables[0].shape[1]
    ends = torch.ones(len(tables[0]), missing), torch.zeros(len(tables[0]), missing)
    return [torch.cat(pair, dim=1) for pair in zip(tables, ends, strict=True)]


def expect_turned(part: ModuleType, q: Tensor, k: Tensor, positions: list[int], what: str, why: str,
                  *tables: Tensor) -> None:  # fmt: skip
    where = torch.tensor(positions, dtype=torch.int64)
    before = [x.clone() for x in (q, k)]
    right = [rope(x, where, *tables) for x in (q, k)]
    with (
        blamed("misaligned", why),
        blamed("out_of_bounds", why),
        blamed("undefined", NO_PACK, where="divided by 0"),
    ):
        turn(part, q, k, positions, *tables)
    for i, (name, got) in enumerate((("q", q), ("k", k))):
        try:
            expect_near(got, right[i], q.dtype, f"{name} of {what}", why=why)
        except Mismatch as error:
            if told := how_turned(before[i], got, right[i], where, *tables):
                error.problem = f"{error.problem}: {told}"
            trios = zip((q, k), before, right, strict=True)
            left = torch.cat([stays(*trio) for trio in trios], dim=1)
            names = f"{q.shape[1]} of q, then {k.shape[1]} of k"
            again = lambda: part.LayerKernels().rope(q, k, where, *tables)  # noqa: E731
            error.why = heads_left(left, names, again) or error.why
            raise


@task("14.5")
def test_halves_are_paired(part: ModuleType) -> None:
    """Dimension i turns together with dimension i + half."""
    q = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]] * 2)
    what = "(1, 2, 3, 4), turned by 0 and by 90 degrees"

    def larger() -> None:
        heads, tables = random(2, 1, 16), rotary_tables(2, 8)
        expect_turned(part, heads, random(2, 1, 16), [0, 1], "heads of 16", "", *tables)

    with half_told(2, 4, F32, larger):
        expect_turned(part, q, torch.zeros(2, 1, 4), [0, 1], what, HALVES, *QUARTER)


@task("14.5")
def test_every_pair_is_turned_once(part: ModuleType) -> None:
    """Every head of q and of k is turned once, by the angles of its token's own position."""
    tables = rotary_tables(20, 8)
    for count, kv_heads in ((1, 1), (4, 2), (3, 3), (40, 8), (300, 2)):
        start_script()
        q, k = random(3, count, 16), random(3, kv_heads, 16, seed=1)
        what = f"3 tokens at positions 17, 2, 9, {count} heads and {kv_heads} key heads of 16"
        expect_turned(part, q, k, [17, 2, 9], what, ONCE, *tables)
    for half, count in ((1100, 1), (65, 12)):  # more pairs than a block has threads
        start_script()
        q, k = random(2, count, 2 * half), random(2, 1, 2 * half, seed=1)
        what = f"{count} heads of {2 * half}"
        expect_turned(part, q, k, [3, 1], what, ONCE, *rotary_tables(4, half))


@task("14.5")
def test_dimensions_beyond_the_rotary_ones_stay(part: ModuleType) -> None:
    """With half below d / 2 the rest of each head stays as it is."""
    q, k = random(2, 2, 64), random(2, 1, 64, seed=1)
    why = "The tables have 8 columns: dimensions 0 to 15 turn, 8 by 8, and 16 to 63 stay."
    expect_turned(part, q, k, [3, 5], "heads of 64 with half 8", why, *rotary_tables(6, 8))


@task("14.5")
def test_many_tokens_turn(part: ModuleType) -> None:
    """Any number of tokens, also if a block of threads takes several."""
    kernels = part.LayerKernels()

    def turn_many(tokens: int) -> None:
        q, k = torch.zeros(tokens, 1, 4), torch.zeros(tokens, 1, 4)
        kernels.rope(q, k, torch.zeros(tokens, dtype=torch.int64), *QUARTER)

    for tokens in (1, 7, 65, count_beyond_grid(turn_many, 20_000)):
        start_script()
        q, k = random(tokens, 1, 4), random(tokens, 1, 4, seed=1)
        before, positions = q.clone(), [i % 3 for i in range(tokens)]
        right = rope(q, torch.tensor(positions), *QUARTER)
        why = (
            "The last block may have room for tokens that do not exist, and every token has a turn."
        )
        try:
            expect_turned(part, q, k, positions, f"{tokens} tokens", why, *QUARTER)
        except Mismatch as error:
            wrong = ~torch.isclose(q.double(), right, rtol=0.02, atol=0.02).all(dim=(1, 2))
            if bool((q[wrong] == before[wrong]).all()):
                error.why = what_is_left(wrong, launches_of(lambda n=tokens: turn_many(n)))  # type: ignore[misc]
            raise


@task("14.5")
def test_tokens_apart(part: ModuleType) -> None:
    """Tokens of q and of k are each at a stride of their own, with packs and without."""
    for d, half, dtype, start in ((32, 16, BF16, 0), (16, 8, F32, 1)):  # from 1 on no pack fits
        q = laid(random(3, 2, d, dtype=dtype), start=start)
        k = laid(random(3, 1, d, seed=1, dtype=dtype), 1, start=start)
        what = f"3 tokens apart, q with strides {q.stride()}, k with {k.stride()}"
        expect_turned(part, q, k, [4, 0, 2], what, STRIDES, *rotary_tables(5, half))


@task("14.5")
def test_each_number_limits_packs(part: ModuleType) -> None:
    """Four addresses, two strides, d and half may forbid packs, alone."""
    names = "q", "k", "cos", "sin", "q_stride", "k_stride", "d", "half"
    for name in names:
        d, half = 44 if name == "d" else 48, 12 if name == "half" else 16
        q, k = (
            laid(random(3, heads, d, seed=i, dtype=BF16), i, start=4 * (name == tensor),
                 step=4 * (name == f"{tensor}_stride"))
            for i, (tensor, heads) in enumerate((("q", 2), ("k", 2)))
        )  # fmt: skip
        cos, sin = rotary_tables(5, half)
        tables = shifted(cos, 2 * (name == "cos")), shifted(sin, 2 * (name == "sin"))
        what = f"heads of {d}, half {half}, where {name} does not suit packs"
        with only(name, told_half(name, half)) as why:
            expect_turned(part, q, k, [4, 0, 2], what, why, *tables)


@task("14.5")
def test_angles_stay_in_float32(part: ModuleType) -> None:
    """Cosines and sines are float32, and so are products and sums: one rounding, at the end."""
    tables = torch.tensor([[1.001953125]]), torch.tensor([[1.0]])
    why = (
        "256 * 1.001953125 - 256 is 0.5. bfloat16 has no number between 1 and 1.0078: with a cosine "
        "that was rounded to it the difference would be 0."
    )
    for d in (2, 16):
        half = d // 2
        q = torch.full((1, 1, d), 256.0, dtype=BF16)
        wide = [table.expand(1, half).contiguous() for table in tables]
        expect_turned(part, q, q.clone(), [0], f"a head of {d} times 256", why, *wide)


@task("14.5")
@examples(25)
@given(heads())
def test_any_rope(part: ModuleType, case: tuple[Tensor, Tensor, Tensor, int]) -> None:
    """Any heads, sizes, strides, alignments and dtypes, as views of one product."""
    q, k, v, half = case
    values, what = v.clone(), f"{list(q.shape)} {q.dtype}, half {half}, strides {q.stride()}"
    positions = [(5 * i + 3) % 11 for i in range(len(q))]
    expect_turned(part, q, k, positions, what, ODD, *rotary_tables(11, half))
    expect_close(v, values, "v, which lies beside k", rtol=0, atol=0, why="v has no position.")


@task("14.5")
def test_rope_is_one_launch_of_packs(part: ModuleType) -> None:
    """q and k in one launch, 16 bytes at a time, each number read and written once."""
    kernels, positions = kernels_of(part), torch.tensor([4, 1, 7, 0])

    def again() -> None:
        q, k = random(4, 3, 128, dtype=BF16), random(4, 1, 128, seed=1, dtype=BF16)
        kernels.rope(q, k, positions, *rotary_tables(8, 64))

    for half in (56, 32):
        start_script()
        q, k = random(4, 3, 112, dtype=BF16), random(4, 1, 112, seed=1, dtype=BF16)
        tables = rotary_tables(8, half)
        work = work_of(lambda q=q, k=k, tables=tables: kernels.rope(q, k, positions, *tables))  # type: ignore[misc]
        what = f"rope of 4 tokens of 4 heads of 112, of which {2 * half} dimensions turn"
        one = "A second launch costs what k does."
        expect_equal(work.launches, 1, f"launches for {what}", why=one)
        expect_packed(work, 4 * 4 * 2 * half * 2, what, again, "heads of 128 and a half of 64")
        expect_whole_sectors(work, what, loads=False)  # angles come from a cache
        expect_loads_in_packs(work, what)


@task("14.5")
def test_most_threads_turn_something(part: ModuleType) -> None:
    """Few heads of few pairs leave room in a block for other tokens."""
    kernels, positions = kernels_of(part), torch.zeros(1024, dtype=torch.int64)
    q, k = torch.zeros(1024, 2, 64, dtype=BF16), torch.zeros(1024, 2, 64, dtype=BF16)
    launches = launches_of(lambda: kernels.rope(q, k, positions, *rotary_tables(2, 32)))
    expect_grid_fits(launches, 1024 * 4 * 4, "rope of 1,024 tokens of 4 heads of 64", most=6)


@task("14.5")
def test_positions_of_a_long_context(part: ModuleType) -> None:
    """A position may be past 2**15 and past 2**16."""
    q, k, places = random(2, 1, 8), random(2, 1, 8, seed=1), [40_003, 70_001]
    why = "Positions are int64, and a context may have more tokens than 16 bits count."
    expect_turned(part, q, k, places, f"tokens at {places}", why, *rotary_tables(70_002, 4))


@task("14.5")
def test_many_tokens_fit_a_grid(part: ModuleType) -> None:
    """However many tokens there are, their launch is one that CUDA takes."""
    dry = part.LayerKernels()

    def launch(tokens: int) -> None:
        q, k = torch.zeros(tokens, 1, 4), torch.zeros(tokens, 1, 4)
        dry.rope(q, k, torch.zeros(tokens, dtype=torch.int64), *QUARTER)

    expect_launched(launch, 100_000)


@task("14.5")
def test_blocks_of_few_heads_take_several_tokens(part: ModuleType) -> None:
    """Where a token has few heads, a block has two warps or more all the same."""
    kernels, positions = kernels_of(part), torch.zeros(1024, dtype=torch.int64)
    q, k = torch.zeros(1024, 2, 64, dtype=BF16), torch.zeros(1024, 2, 64, dtype=BF16)
    launches = launches_of(lambda: kernels.rope(q, k, positions, *rotary_tables(2, 32)))
    expect_two_warps(launches, "rope of 1,024 tokens of 4 heads of 64")


@task("14.5")
def test_errors_of_a_launch_are_returned(part: ModuleType) -> None:
    """What launch() returned is returned, with packs and without."""
    kernels, where = kernels_of(part), torch.tensor([0])
    for half in (8, 7):
        q, k = torch.ones(1, 1, 2 * half), torch.ones(1, 1, 2 * half)
        expect_errors_returned(
            lambda q=q, k=k, half=half: kernels.rope(q, k, where, *rotary_tables(1, half)),  # type: ignore[misc]
            f"rope of a token of 2 heads of {2 * half}",
        )
