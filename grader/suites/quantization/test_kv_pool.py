"""Task 19.7: keys and values in INT8."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, examples, expect, expect_close, expect_equal, quietly, task, watch
from grader.kit.kernels import expect_gaps_kept, padded
from grader.suites.quantization.code_kinds import why_back
from yaie.core.batch import KVLayerSpec

LAYERS = [KVLayerSpec(2, 4), KVLayerSpec(2, 4), KVLayerSpec(1, 6)]
BLOCKS, SIZE, HOST = 5, 2, 3
CPU = torch.device("cpu")
HEAD = (
    "Each head of each token has a scale of its own: a loud head beside a quiet one would leave it no "
    "codes."
)
SLOT = "A scale lies where its codes lie: slot s is row s % block_size of block s // block_size."
STORED = "The scale is rounded to bfloat16 first, and it is that number which is divided by."
JOINED = (
    "All of these tokens are there, in another order: table by table, its blocks as it names them."
)
WIDE = (
    "float16 ends at 6e-8 below: a scale, and a quotient, of small numbers lose their digits there. "
    "Widen codes, scales and numbers to float32, and round the result alone."
)
MOVED = "A block is codes and scales: one without the other is other numbers."
ORDERS: list[list[int]] = [[], [4, 6, 5, 7], [3, 1], [2]]
"""Slots of a few writes."""
READ_FIRST = (
    "A pair's source may be another pair's target: read every block before the first is written."
)


def make(part: ModuleType, dtype: torch.dtype = torch.float32, host: int = HOST) -> Any:
    return watch(part.Int8KVPool(LAYERS, BLOCKS, SIZE, dtype, CPU, host), "pool")


def why_moved(pool: Any, layer: int, half: int, before: Tensor, sources: list[int]) -> str:
    """MOVED, if codes came along and scales did not; READ_FIRST, if a block was read after it was
    written; "" if neither explains the blocks. before: [block, slot, head, dim], as numbers."""
    scales = quietly(pool).scales(layer)[half].float()
    widest = before.float().abs().amax(dim=-1) / 127
    moved = torch.isclose(scales, widest[sources], rtol=0.02).all()
    stayed = torch.isclose(scales, widest, rtol=0.02).all()
    if bool(stayed) and not bool(moved):
        return MOVED
    one_by_one = list(range(BLOCKS))
    host = {1: one_by_one[2], 0: one_by_one[4]}
    for source, target in ((0, 1), (1, 0), (3, 4)):
        one_by_one[target] = one_by_one[source]
    for source, target in ((1, 3), (0, 2)):
        one_by_one[target] = host[source]
    return READ_FIRST if bool(torch.isclose(scales, widest[one_by_one], rtol=0.02).all()) else ""


def tokens(layer: int, n: int, seed: int = 0) -> list[Tensor]:
    """K and V of n tokens, [n, kv_heads, head_dim]: heads of very different sizes."""
    spec, generator = LAYERS[layer], torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.arange(spec.num_kv_heads)[:, None]
    shape = (n, spec.num_kv_heads, spec.head_dim)
    return [torch.randn(shape, generator=generator) * sizes * scale for scale in (1.0, 0.2)]


def expect_back(
    pool: Any, layer: int, name: str, slots: Tensor, got: Tensor, given: Tensor, what: str = ""
) -> None:
    """That K or V of these slots comes back as it was given [n, heads, head_dim], rounded; if not, what
    is wrong: a scale, a code, or how they are read."""
    what = what or f"{name} of slots {slots.tolist()}"
    try:
        expect_rounded(got, given, what, "")
    except Mismatch as error:
        if got.shape == given.shape:
            sentences = (HEAD, SLOT, STORED)
            error.why = why_back(pool, layer, "KV".index(name), slots, given, got, sentences)
        raise


def expect_rounded(got: Tensor, right: Tensor, what: str, why: str) -> None:
    """Within half a step of each head's scale, [..., heads, head_dim]."""
    expect_equal(list(got.shape), list(right.shape), f"the shape of {what}")
    step = right.double().abs().amax(dim=-1, keepdim=True) / 127
    error = (got.double() - right.double()).abs()
    worse = error > 0.51 * step + 1e-9
    if bool(worse.any()):
        at = tuple(worse.nonzero()[0].tolist())
        expect(
            False,
            f"{what}: {float(right[at]):.5g} at {list(at)} comes back as {float(got[at]):.5g}, more "
            f"than half a step of its head ({float(step[at[:-1]]):.3g}) away",
            why=why,
        )


def why_tables(got: Tensor, whole: Tensor, tables: Tensor) -> str:
    """JOINED, if all that was gathered is there, in other places."""
    blocks = whole.view(BLOCKS, SIZE, 2, 4)[tables].flatten(0, 2).flatten(1)
    if got.numel() != blocks.numel():
        return ""
    rows = got.float().reshape(blocks.shape)
    there = [bool(((rows - one).abs() <= 0.01 * one.abs().max()).all(1).any()) for one in blocks]
    return JOINED if all(there) else ""


def gathered(pool: Any, layer: int) -> list[Tensor]:
    """K and V of all blocks, [SLOTS, kv_heads, head_dim]."""
    return [x[0] for x in quietly(pool).gather(layer, torch.arange(BLOCKS)[None])]


@task("19.7")
def test_a_token_by_hand(part: ModuleType) -> None:
    """The largest number of a head is 127 steps; codes and scales lie at the token's slot."""
    pool = make(part)
    k = torch.tensor([[[127.0, -63.6, 0.4, 0.0], [0.5, 0.25, -0.125, 0.5]]])
    pool.write(0, k, 2 * k, torch.tensor([7]))
    codes, scales = pool.blocks(0)[0], pool.scales(0)[0]
    expect_equal(
        (codes.dtype, scales.dtype), (torch.int8, torch.bfloat16), "dtypes of codes and scales"
    )
    expect_equal(list(scales.shape), [BLOCKS, SIZE, 2], "the shape of scales", why=HEAD)
    expect_equal(
        codes[3, 1, 0].tolist(), [127, -64, 0, 0], "codes of (127, -63.6, 0.4, 0)", why=SLOT
    )
    right = torch.tensor([1.0, 0.5 / 127])
    is_elsewhere = bool(torch.isclose(scales.float(), right, rtol=1e-2).all(dim=-1).any())
    is_shared = bool((scales[3, 1].float() == 1.0).all())
    why = SLOT if is_elsewhere else HEAD if is_shared else ""
    expect_close(scales[3, 1].float(), right, "scales of slot 7", rtol=1e-2, why=why)
    expect_equal(int(codes.count_nonzero()), 6, "codes that are not 0 in the layer's K", why=SLOT)
    value = pool.scales(0)[1][3, 1].float()
    expect_close(
        value, torch.tensor([2.0, 1 / 127]), "scales of V", rtol=1e-2, why="V has its own."
    )


@task("19.7")
def test_each_head_of_each_token_has_its_scale(part: ModuleType) -> None:
    """Written and gathered, every number is within half a step of its own head."""
    for layer in range(len(LAYERS)):
        pool = make(part)
        k, v = tokens(layer, 4)
        k[1] *= 1000
        slots = torch.tensor([3, 8, 0, 5])
        pool.write(layer, k, v, slots)
        for name, got, right in zip("KV", gathered(pool, layer), (k, v), strict=True):
            expect_back(pool, layer, name, slots, got[slots], right)


@task("19.7")
def test_the_stored_scale_is_divided_by(part: ModuleType) -> None:
    """No code is beyond 127, and none is further from its number than another would be."""
    pool = make(part)
    k = torch.linspace(1.0, 2.0, 8 * 8).view(8, 2, 4)
    pool.write(0, k, k, torch.arange(8))
    codes, scales = (x.flatten(0, 1)[:8] for x in (pool.blocks(0)[0], pool.scales(0)[0]))
    right = (k.double() / scales.double()[..., None]).round()
    exact = (k.float() / (k.float().abs().amax(dim=-1, keepdim=True) / 127)).round()
    why = STORED if torch.equal(codes.float(), exact) or bool((right.abs() > 127).any()) else ""
    expect_equal(codes.tolist(), right.long().tolist(), "codes on the grid of the scale", why=why)


@task("19.7")
def test_heads_of_zeros(part: ModuleType) -> None:
    """A head of zeros comes back as zeros, and so does a slot that nothing was written to."""
    pool = make(part)
    k = torch.zeros(1, 2, 4)
    pool.write(0, k, k, torch.tensor([4]))
    expect_equal(
        pool.scales(0)[0][2, 0].tolist(), [1.0, 1.0], "scales of zeros", why="0 / 0 is NaN."
    )
    for name, got in zip("KV", gathered(pool, 0), strict=True):
        expect_close(got, torch.zeros(BLOCKS * SIZE, 2, 4), f"{name} of a pool of zeros")


@task("19.7")
def test_gather_joins_the_blocks_of_each_table(part: ModuleType) -> None:
    """Row i of gather is the content of table i's blocks in the table's order, in the model's dtype."""
    for dtype in (torch.float32, torch.float16):
        pool = make(part, dtype)
        k, v = (x.to(dtype) for x in tokens(0, BLOCKS * SIZE))
        pool.write(0, k, v, torch.arange(BLOCKS * SIZE))
        for kind in (torch.int64, torch.int32):
            tables = torch.tensor([[4, 1, 1], [0, 2, 4]], dtype=kind)
            for name, got, whole in zip("KV", pool.gather(0, tables), (k, v), strict=True):
                expect_equal(got.dtype, dtype, f"the dtype of gathered {name}")
                right = whole.view(BLOCKS, SIZE, 2, 4)[tables.long()].flatten(1, 2)
                what = f"gathered {name} [table, token, head, dim]"
                expect_rounded(got, right, what, why_tables(got, whole, tables.long()))


@task("19.7")
def test_write_takes_views(part: ModuleType) -> None:
    """K and V may be views of one product, and stay as they are."""
    pool = make(part)
    k, v = (padded(x) for x in tokens(0, 3))
    pool.write(0, k, v, torch.tensor([2, 5, 9]))
    for name, got, right in zip("KV", gathered(pool, 0), (k, v), strict=True):
        expect_back(pool, 0, name, torch.tensor([2, 5, 9]), got[[2, 5, 9]], right)
        expect_gaps_kept(name, right, why="write reads k and v, and changes nothing in them.")
    k, v = (x.half() for x in tokens(1, 2))
    pool.write(1, k, v, torch.tensor([0, 1]))
    two = torch.tensor([0, 1])
    expect_back(pool, 1, "K", two, gathered(pool, 1)[0][:2], k, "K that was float16")


@task("19.7")
def test_blocks_move_with_their_scales(part: ModuleType) -> None:
    """Copied, swapped out and swapped in, a block gives the numbers that it gave before."""
    pool = make(part)
    contents = []
    for layer in range(len(LAYERS)):
        k, v = tokens(layer, BLOCKS * SIZE, seed=layer)
        k *= 1 + torch.arange(BLOCKS * SIZE)[:, None, None]
        pool.write(layer, k, v, torch.arange(BLOCKS * SIZE))
        contents.append([x.unflatten(0, (BLOCKS, SIZE)) for x in gathered(pool, layer)])
    pool.swap_out([(2, 1), (4, 0)])
    pool.copy_blocks([(0, 1), (1, 0), (3, 4)])
    pool.swap_in([(1, 3), (0, 2)])
    sources = [1, 0, 4, 2, 3]
    for layer, before in enumerate(contents):
        for name, got, old in zip("KV", gathered(pool, layer), before, strict=True):
            what = f"{name} of layer {layer} [slot, head, dim] after the moves"
            right = old[sources].flatten(0, 1)
            expect_close(
                got, right, what, why=why_moved(pool, layer, "KV".index(name), old, sources)
            )


@task("19.7")
def test_no_pairs_move_nothing(part: ModuleType) -> None:
    """A step that moves no block passes empty lists; a pool without host blocks takes them."""
    pool = make(part, host=0)
    k, v = tokens(0, 2)
    pool.write(0, k, v, torch.tensor([0, 1]))
    for call in ("copy_blocks", "swap_out", "swap_in"):
        getattr(pool, call)([])
    expect_back(pool, 0, "K", torch.tensor([0, 1]), gathered(pool, 0)[0][:2], k)


@task("19.7")
def test_gather_reads_what_is_there_now(part: ModuleType) -> None:
    """The same tables give what the blocks hold at each call."""
    pool, tables = make(part), torch.tensor([[4, 1], [0, 4]])
    earlier: list[Tensor] = []
    for seed in range(2):
        k, v = tokens(0, BLOCKS * SIZE, seed)
        pool.write(0, k, v, torch.arange(BLOCKS * SIZE))
        for name, got, whole in zip("KV", pool.gather(0, tables), (k, v), strict=True):
            right = whole.view(BLOCKS, SIZE, 2, 4)[tables].flatten(1, 2)
            is_old = any(torch.equal(got, one) for one in earlier)
            why = "These are the numbers of the gather before, of what was overwritten since."
            what = f"gathered {name} [table, token, head, dim]"
            expect_rounded(got, right, what, why if is_old else "")
            earlier.append(got.clone())


@task("19.7")
@examples(20)
@given(
    st.lists(st.integers(0, BLOCKS * SIZE - 1), min_size=1, max_size=6, unique=True),
    st.integers(0, 2), st.integers(0, 99),
)  # fmt: skip
def test_any_write(part: ModuleType, slots: list[int], layer: int, seed: int) -> None:
    """A write changes its slots of its layer, and no other."""
    pool = make(part)
    for each in range(len(LAYERS)):
        pool.write(each, *tokens(each, BLOCKS * SIZE), torch.arange(BLOCKS * SIZE))
    before = [gathered(pool, each) for each in range(len(LAYERS))]
    new = tokens(layer, len(slots), seed)
    pool.write(layer, *new, torch.tensor(slots))
    for each, old in enumerate(before):
        for name, got, kept, fresh in zip("KV", gathered(pool, each), old, new, strict=True):
            others = [s for s in range(BLOCKS * SIZE) if each != layer or s not in slots]
            expect_close(
                got[others], kept[others], f"{name} of layer {each}, other slots", why=SLOT
            )
            if each == layer:
                expect_back(pool, each, name, torch.tensor(slots), got[slots], fresh)


@task("19.7")
def test_heads_in_float16(part: ModuleType) -> None:
    """K in float16 is widened before it is rounded, and what is gathered is rounded to float16 once."""
    pool = make(part, torch.float16)
    heads = torch.linspace(1.0, 2.0, 8 * 8).view(8, 2, 4) * torch.tensor([[1.0], [1e-4]])
    k = heads.half()
    pool.write(0, k, k, torch.arange(8))
    codes, scales = (x.flatten(0, 1)[:8] for x in (pool.blocks(0)[0], pool.scales(0)[0]))
    right = (k.float().abs().amax(dim=-1) / 127).bfloat16()
    expect_close(
        scales.float(), right.float(), "scales of heads of 1 and 0.0001", rtol=1e-3, why=WIDE
    )
    steps = (k.double() / right.double()[..., None]).round()
    expect_equal(codes.tolist(), steps.long().tolist(), "codes on the grid of the scale", why=WIDE)
    back = pool.gather(0, torch.arange(4)[None])[0][0].double()
    numbers = (steps * right.double()[..., None]).half().double()
    expect_close(back, numbers, "K that was gathered in float16", rtol=2e-3, why=WIDE)


@task("19.7")
def test_write_goes_by_each_slot(part: ModuleType) -> None:
    """Slots come in any order, and a step without tokens has none."""
    pool = make(part)
    for seed, slots in enumerate(ORDERS):
        k, v = tokens(0, len(slots), seed)
        at = torch.tensor(slots, dtype=torch.int64)
        pool.write(0, k, v, at)
        for name, got, right in zip("KV", gathered(pool, 0), (k, v), strict=True):
            if slots:
                expect_back(pool, 0, name, at, got[at], right)


@task("19.7")
def test_a_block_may_go_to_several(part: ModuleType) -> None:
    """Block 0 may be copied to 3 and to 4: each pair is carried out."""
    pool = make(part)
    k, v = tokens(0, BLOCKS * SIZE)
    pool.write(0, k, v, torch.arange(BLOCKS * SIZE))
    before = gathered(pool, 0)
    pool.copy_blocks([(0, 3), (1, 2), (0, 4)])
    sources = [0, 1, 1, 0, 0]
    for name, got, old in zip("KV", gathered(pool, 0), before, strict=True):
        here, was = (x.unflatten(0, (BLOCKS, SIZE)) for x in (got, old))
        for block, source in enumerate(sources):
            whose = [other for other in range(BLOCKS) if torch.allclose(here[block], was[other])]
            if source in whose:
                continue
            found = f"what block {whose[0]} held" if whose else "other numbers"
            raise Mismatch(
                f"{name} of block {block} after copy_blocks([(0, 3), (1, 2), (0, 4)])",
                f"what block {source} held",
                found if whose != [block] else "what it held before",
                "Of the pairs (0, 3) and (0, 4) only one was carried out."
                if block > 2 and whose == [block]
                else "",
            )
