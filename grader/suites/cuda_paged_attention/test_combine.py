"""Task 16.4: the parts as one softmax, and the whole of decode."""

import math
from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, examples, expect, note, start_script, task
from grader.kit.cuda_work import expect_whole_sectors, work_of
from grader.kit.kernels import expect_near, paged_pool, random
from grader.kit.recomputed import Kinds
from grader.suites.cuda_paged_attention.bench import (
    HIDDEN,
    exact_decode,
    expect_rounded_once,
    joined,
    queries,
    some,
    spec_of,
)
from grader.suites.cuda_paged_attention.mistakes import first_alone, part_kinds
from yaie.core.batch import AttentionSpec

F32 = torch.float32
PLAIN = AttentionSpec(1.0)


def combined(
    part: ModuleType,
    weights: list[list[float]],
    values: list[list[float]],
    lens: list[int],
    *,
    maxima: list[list[float]] | None = None,
    spec: AttentionSpec = PLAIN,
    keys_per_part: int = 4,
    dim: int = 16,
) -> Tensor:
    """What `combine` makes of parts [n][parts] of one head, each with a sum of weights, a maximum and a
    mean value."""
    sums, means = torch.tensor(weights), torch.tensor(values)
    tops = torch.zeros_like(sums) if maxima is None else torch.tensor(maxima)
    acc = (sums * means)[:, None, :, None].expand(-1, 1, -1, dim).contiguous()
    stats = torch.stack((tops, sums), dim=-1)[:, None].contiguous()
    told = ", ".join(
        f"{name} {[short(row) for row in rows]}"
        for name, rows in (("sums", weights), ("maxima", tops.tolist()), ("mean values", values))
    )
    note(f"combine: {some(sums.shape[1], 'part')}, {told}, lens {lens}".replace("'", ""))
    split = part.Split(sums.shape[1], keys_per_part)
    seq_lens = torch.tensor(lens, dtype=torch.int32)
    out: Tensor = part.PagedAttention().combine(part.Parts(acc, stats, split), seq_lens, spec, F32)
    return out


def short(row: list[float]) -> str:
    """A row of numbers, of a long one the ends."""
    if len(row) <= 8:
        return str(row)
    first, last = (", ".join(map(str, ends)) for ends in (row[:3], row[-3:]))
    return f"[{first}, ..., {last}]"


def expect_values(
    out: Tensor, values: list[float], what: str, why: str, kinds: Kinds | None = None
) -> None:
    exact = torch.tensor(values, dtype=torch.float64)[:, None, None].expand(out.shape)
    try:
        expect_near(out, exact, F32, what, why=why, kinds=kinds)
    except Mismatch as error:
        # No memory is poisoned here: NaN comes of what was read, or of 0 / 0.
        error.problem = error.problem.split(": never")[0]
        raise


@task("16.4")
def test_parts_count_by_their_sums(part: ModuleType) -> None:
    """The share of a part is the sum of its weights, not one part's."""
    out = combined(part, [[1.0, 3.0]], [[8.0, 4.0]], [8])
    why = "Sums 1 and 3 at the same maximum: 1/4 of 8 and 3/4 of 4. Without weights it would be 6."
    flat = out.flatten()
    if bool(torch.isclose(flat[:2], torch.tensor(5.0)).all() and flat[2:].isinf().all()):
        why = (
            "Elements 0 and 1 are right, the others infinite, and there are 2 parts, which lanes 0 and "
            "1 take. A lane without a part has the maximum LOWEST, and exp(0 - LOWEST) is infinite: "
            "weights of the parts are relative to the maximum over all lanes."
        )
    expect_values(out, [5.0], "two parts with means 8 and 4", why)


@task("16.4")
def test_a_head_wider_than_a_block(part: ModuleType) -> None:
    """All elements of a head are combined, also where there are more of them than threads."""
    out = combined(part, [[1.0, 3.0]], [[8.0, 4.0]], [8], dim=256)
    why = "A block has 128 threads, a head up to 256 elements: go on in steps of THREADS."
    expect_values(out, [5.0], "two parts with means 8 and 4, of a head of 256", why)


@task("16.4")
def test_parts_are_relative_to_one_maximum(part: ModuleType) -> None:
    """Sums and accumulated values of a part are relative to its own maximum."""
    out = combined(part, [[1.0, 1.0]], [[8.0, 4.0]], [8], maxima=[[0.0, math.log(3.0)]])
    why = "Equal sums, but a maximum larger by log 3 makes the second weigh 3 times as much: 5."
    expect_values(out, [5.0], "two parts with means 8 and 4", why)
    start_script()
    out = combined(part, [[1.0, 1.0]], [[8.0, 4.0]], [8], maxima=[[200.0, 200.0]])
    why = "exp(200) is infinite in float32: subtract the largest maximum of the parts first."
    expect_values(out, [6.0], "two parts whose maxima are 200", why)
    start_script()
    out = combined(part, [[1.0, 1.0]], [[8.0, 4.0]], [8], maxima=[[-20_000.0, -20_000.0]])
    why = (
        "All scores are about -20,000. Relative to 0, or to -10,000, their exp is 0 in float32, and "
        "0 / 0 is NaN: a running maximum begins at LOWEST."
    )
    expect_values(out, [6.0], "two parts whose maxima are -20,000", why)


@task("16.4")
def test_every_part_counts(part: ModuleType) -> None:
    """However many parts there are, more than a warp's lanes or a block's threads, each counts."""
    passed: list[tuple[Kinds, float]] = []
    for count, largest in ((33, 32), (66, 65), (66, 0), (140, 139), (1100, 1099)):
        sums = [[1.0 + (i % 3) for i in range(count)]]
        values = [[float(i % 7) for i in range(count)]]
        near = [99.0 if abs(i - largest) < 20 else -50.0 for i in range(count)]
        maxima = [[*near[:largest], 100.0, *near[largest + 1 :]]]
        weights = [w * math.exp(m - 100.0) for w, m in zip(sums[0], maxima[0], strict=True)]
        exact = sum(w * v for w, v in zip(weights, values[0], strict=True)) / sum(weights)
        out = combined(part, sums, values, [4 * count], maxima=maxima)
        why = "" if passed else "A long context has many parts: plan_split(8, 16384, 528) gives 66."
        kinds = part_kinds(*(torch.tensor(row[0]) for row in (sums, maxima, values)))
        # What would have failed above is not the mistake.
        likely = {
            told: compute
            for told, compute in kinds.items()
            if all(abs(float(earlier[told]()) - right) < 1e-3 for earlier, right in passed)
        }
        likely |= first_alone(sums[0], maxima[0], values[0])
        what = f"{count} parts, of which number {largest} has the largest maximum"
        expect_values(out, [exact], what, why, likely)
        passed.append((kinds, exact))


@task("16.4")
def test_parts_without_keys_are_not_read(part: ModuleType) -> None:
    """A short sequence has fewer parts; what the others hold was never written."""
    nan = math.nan
    out = combined(
        part, [[2.0, nan, nan], [1.0, 1.0, nan]], [[3.0, nan, nan], [2.0, 4.0, nan]], [4, 5]
    )
    why = "With 4 keys a part, 4 keys fill one part and 5 keys begin a second: the rest holds NaN."
    expect_values(out, [3.0, 3.0], "sequences of 4 and 5 keys, in parts of 4", why)


@task("16.4")
def test_a_window_has_fewer_parts(part: ModuleType) -> None:
    """Under a window only the visible keys have parts."""
    nan, spec = math.nan, AttentionSpec(1.0, window=4)
    out = combined(part, [[2.0, nan], [1.0, nan]], [[3.0, nan], [2.0, nan]], [8, 3], spec=spec)
    why = "A window of 4 leaves 4 of 8 keys: one part of 4. The second was never written."
    expect_values(out, [3.0, 2.0], "8 and 3 keys under a window of 4, in parts of 4", why)


@task("16.4")
def test_a_sequence_without_keys_gives_zero(part: ModuleType) -> None:
    """No keys, no parts: the output is 0, with a sink too."""
    for sinks in (None, torch.tensor([1.0])):
        spec = AttentionSpec(1.0, sinks=sinks)
        out = combined(part, [[math.nan], [1.0]], [[math.nan], [0.0]], [0, 2], spec=spec)
        expect_values(out, [0.0, 0.0], "a sequence of no keys", "0 / 0 would be NaN.")


def sink_kinds(parts: int) -> Kinds:
    """Mistakes with a sink of log 2 beside keys of weight 2 and mean 8, in so many parts."""
    weights = {
        "The sink weighed exp(sink) = 2, and the keys, relative to the largest maximum log 2, 1 "
        "together. The sink is relative to the maximum as they are: exp(sink - maximum).": 2.0,
        "The sink was left out.": 0.0,
        "The sink was counted once a lane, 32 times. It is added after the lanes are.": 32.0,
    }
    if parts > 1:
        told = f"A sink a part was counted, {parts} in all. The parts know no sink: it counts once."
        weights[told] = float(parts)
    return {told: lambda w=w: torch.tensor(8.0 / (1.0 + w)) for told, w in weights.items()}  # type: ignore[misc]


@task("16.4")
def test_a_sink_counts_once(part: ModuleType) -> None:
    """The sink joins the softmax once, however many parts there are, and relative to the maximum."""
    spec = AttentionSpec(1.0, sinks=torch.tensor([math.log(2.0)]))
    for parts in (1, 3):
        start_script()
        out = combined(part, [[2.0 / parts] * parts], [[8.0] * parts], [4 * parts], spec=spec)
        why = (
            "Keys weigh 2 together, the sink 2: half of 8 is left. A sink a part would leave less."
            if parts > 1
            else "Keys weigh 2, relative to the maximum 0. With the sink, log 2, the largest maximum is "
            "log 2: keys weigh 2 * exp(0 - log 2) = 1, the sink exp(log 2 - log 2) = 1, and half of 8 "
            "is left: both are relative to the maximum."
        )
        what = f"{some(parts, 'part')} and a sink of log 2"
        expect_values(out, [4.0], what, why, sink_kinds(parts))
    spec = AttentionSpec(1.0, sinks=torch.tensor([5.0]))
    out = combined(part, [[1.0]], [[8.0]], [4], maxima=[[5.0]], spec=spec)
    why = "Sums are relative to the maximum 5, and so must be the sink: exp(5 - 5) = 1, as the key."
    expect_values(out, [4.0], "a key and a sink of score 5", why)
    spec = AttentionSpec(1.0, sinks=torch.tensor([200.0]))
    out = combined(part, [[1.0]], [[8.0]], [4], spec=spec)
    why = "A sink may be the largest: exp(200) is infinite, unless the sink joins the maximum."
    expect_values(out, [0.0], "a key of score 0 and a sink of 200", why)
    out = combined(part, [[1.0]], [[8.0]], [4], maxima=[[200.0]], spec=spec)
    expect_values(out, [4.0], "a key and a sink of score 200", why)
    out = combined(part, [[1.0]], [[8.0]], [4], maxima=[[100.0]], spec=spec)
    expect_values(out, [0.0], "a key of score 100 and a sink of 200", why)


@task("16.4")
@examples(12)
@given(
    lens=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    dim=st.sampled_from([16, 80, 256]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    sink=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_parts(
    part: ModuleType, lens: list[int], dim: int, dtype: torch.dtype, sink: bool, seed: int
) -> None:
    """Any parts, heads, sinks and dtypes give one softmax, rounded once at the end."""
    heads, parts = 2, 4
    acc = random(len(lens), heads, parts, dim, seed=seed)
    sums = random(len(lens), heads, parts, seed=seed + 1).abs() + 1.0
    stats = torch.stack((random(len(lens), heads, parts, seed=seed + 2, scale=3.0), sums), dim=-1)
    sinks = random(heads, seed=seed + 3) if sink else None
    seq_lens = torch.tensor(lens, dtype=torch.int32)
    note(f"combine: parts of 3 keys, 2 heads of {dim}, lens {lens}, sinks {sinks}, {dtype}")
    made = part.Parts(acc, stats, part.Split(parts, 3))
    spec = AttentionSpec(1.0, sinks=sinks)
    out = part.PagedAttention().combine(made, seq_lens, spec, dtype)
    exact = joined(made, [-(-length // 3) for length in lens], sinks)
    why = "Every head has its own parts, its own maximum and its own sink."
    expect_near(out, exact, dtype, f"{heads} heads of {dim} of sequences of {lens} keys", why=why)


@task("16.4")
def test_the_whole_of_decode(part: ModuleType) -> None:
    """Plan, parts and combine together are the contract's decode."""
    lens = [300, 0, 7]
    pool = paged_pool(lens, block_size=16)
    spec = spec_of(16, window=290, softcap=5.0, sinks=torch.tensor([1.0, -2.0, 0.5, 3.0]))
    q = queries(3, 4, 16)
    note(f"decode: 4 heads of 16 on 2, lens {lens}, window 290, softcap 5, sinks")
    out = part.PagedAttention().decode(
        q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec,
        max_seq_len=300,
    )  # fmt: skip
    expect_near(out, exact_decode(q, pool, spec), F32, f"decode of lens {lens}", why=HIDDEN)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@task("16.4")
def test_the_result_is_rounded_once(part: ModuleType) -> None:
    """What the parts add up to is float32, and so is its quotient: only the result is rounded."""
    generator = torch.Generator().manual_seed(3)
    parts, dim = 9, 128
    acc = torch.randn(1, 2, parts, dim, generator=generator)
    sums = torch.rand(1, 2, parts, generator=generator) + 1.0
    acc[:, :, 1] -= acc[:, :, 0] * 0.99  # parts of two warps that nearly cancel
    stats = torch.stack((torch.zeros_like(sums), sums), dim=-1)
    made = part.Parts(acc, stats, part.Split(parts, 3))
    lens = torch.tensor([3 * parts], dtype=torch.int32)
    warps = torch.stack([acc.double()[:, :, warp::4].sum(dim=2) for warp in range(4)])
    totals, divisors = acc.double().sum(dim=2), sums.double().sum(dim=2)[..., None]
    for dtype in (torch.bfloat16, torch.float16):
        start_script()
        note(f"combine: {parts} parts of 2 heads of {dim}, all maxima 0, {dtype}")
        out = part.PagedAttention().combine(made, lens, PLAIN, dtype)
        kinds: Kinds = {
            "Sum and total were rounded before the division.": lambda d=dtype: (  # type: ignore[misc]
                totals.to(d).double() / divisors.to(d).double()
            ),
            "1 / sum was rounded before it multiplied the total.": lambda d=dtype: (  # type: ignore[misc]
                totals * (1 / divisors).to(d).double()
            ),
            f"What each warp gathers was rounded to {name_of(dtype)} before all was added up. It is "
            "float32.": lambda d=dtype: warps.to(d).double().sum(dim=0) / divisors,  # type: ignore[misc]
            f"Each part's values were rounded to {name_of(dtype)} before they were added up. They are "
            "float32.": lambda d=dtype: acc.to(d).double().sum(dim=2) / divisors,  # type: ignore[misc]
        }
        why = "What each warp gathers, the sum of all and the quotient are float32."
        what = f"{parts} parts in {dtype}"
        expect_rounded_once(out, totals / divisors, what, why, kinds)


@task("16.4")
def test_each_part_is_read_once(part: ModuleType) -> None:
    """Each element of acc is loaded by one thread, and neighbours load neighbours."""
    parts, dim = 66, 128
    acc, stats = torch.ones(1, 1, parts, dim), torch.ones(1, 1, parts, 2)
    made = part.Parts(acc, stats, part.Split(parts, 4))
    lens = torch.tensor([4 * parts], dtype=torch.int32)
    note(f"combine: {parts} parts of a head of {dim}")
    work = work_of(lambda: part.PagedAttention().combine(made, lens, PLAIN, F32))
    stored = acc.numel() * 4
    # With each element a thread may read its part's maximum and sum, which a cache holds.
    expect(
        work.loads.bytes < 4 * stored,
        f"acc is {stored:,} bytes, and {work.loads.bytes:,} were loaded",
        why="Warps share the parts: each takes some of them, and what they gather is added up.",
    )
    expect_whole_sectors(work, f"combining {parts} parts of {dim}")
