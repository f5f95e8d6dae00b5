"""Task 16.1: the softmax of a part of the keys."""

import math
from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, task
from grader.kit.cuda_work import blamed, work_of
from grader.kit.kernels import Pool, expect_near, paged_pool
from grader.suites.cuda_paged_attention.bench import (
    F32,
    HIDDEN,
    everywhere,
    exact_decode,
    expect_decode,
    in_one_block,
    joined,
    marked,
    means,
    queries,
    run_parts,
    slot,
    spec_of,
)
from grader.suites.cuda_paged_attention.mistakes import table_kinds, team_kinds

TEAMS = "a key is one team's, a team holds 8 elements a lane: 4 teams of 32 lanes for a head of 256"
EXCHANGES = (
    "By halves, 16 scores take 8, 4 and 2 shuffles over 8 lanes (16 at each distance are 48). Each "
    "weight is handed round in one, 16 more; the maximum takes one, since a head has 2 lanes, and the "
    "vote one: 32 a turn. All scores are equal here: no maximum rises after the first turn, so no "
    "later one has factors."
)
TURN = 8
"""Keys that 4 teams of a float32 head of 256 take in a turn: key p is the p // 4-th of team p % 4."""


@task("16.1")
def test_each_key_counts_once(part: ModuleType) -> None:
    """The sum and acc of a head are those of its keys' weights, each counted once."""
    pool = in_one_block(TURN)
    pool.value_blocks[~pool.value_blocks.isnan()] = 1.0
    found = run_parts(part, queries(1, 3, 256), pool, spec_of(256), 1, 256)
    weight = found.stats[0, :, 0, 0].double().exp()
    what = "8 keys of weight 1, with each of 3 heads"
    eights = torch.full((256,), 8.0, dtype=torch.float64)
    why = (
        "Values are 1, so acc is 8 in all of 256 elements. If only those from 128 on differ: a block "
        "has 128 threads, so in the merge each goes on in steps of THREADS."
    )
    acc = found.acc[0, 0, 0].double() * weight[0]
    expect_near(acc.float(), eights, F32, f"{what}: acc of head 0", why=why)
    why = (
        "3 heads (as 4) with 2 keys are 8 scores for the 32 lanes of a team. COPIES = 4 lanes hold the "
        "same score, and each adds its weight to its own sum. The merge adds up the PER_HEAD = 8 lanes "
        "of a head, so that each score counts once, and writes each head's sum."
    )
    total = (found.stats[0, :, 0, 1].double() * weight).float()
    expect_near(total, eights[:3], F32, f"{what}: the sums of heads 0 to 2", why=why)


@task("16.1")
def test_a_turn_weighs_its_own_keys(part: ModuleType) -> None:
    """The scores of a turn are those of its keys, and weigh the values of the same keys."""
    pool = in_one_block(3 * TURN)
    pool.key_blocks[0, TURN : 3 * TURN] = -64.0
    why = (
        "4 teams take 2 keys each in a turn, so 24 keys are three full turns. Those of the first have "
        "the score 0, those of the others -1024 and no weight: the mean of values 0 to 7 is left. The "
        "next keys are loaded after the products, the next values after those of this turn were added, "
        "both from tile + TURN on."
    )
    what = "24 keys, of which those after the first turn have no weight"
    exact = means([3.5])
    expect_decode(part, torch.ones(1, 1, 256), pool, spec_of(256), what, why, exact=exact)


@task("16.1")
def test_keys_are_found_through_the_table(part: ModuleType) -> None:
    """Position p lies in slot p % block_size of block p // block_size of the sequence's own table."""
    pool = everywhere(marked([TURN, TURN]))
    what = "8 keys of zero, values 0 to 7, twice: their means, from blocks "
    what += str([row[:2].tolist() for row in pool.block_tables])
    why = (
        "Blocks lie anywhere in the pool, and a table's entry says where. All other slots have a value, "
        "too: 1,000 and the number of the slot."
    )
    expect_decode(
        part, queries(2, 1, 256), pool, spec_of(256), what, why, exact=means([3.5, 3.5]),
        kinds=table_kinds(pool, TURN),
    )  # fmt: skip


@task("16.1")
def test_blocks_of_any_size(part: ModuleType) -> None:
    """A block may have any number of slots, 5 as well as 16."""
    for size, length in ((5, TURN), (41, 6 * TURN)):
        what = f"{length} keys of zero, values 0 to {length - 1}, in blocks of {size}: the mean"
        why = (
            f"{size} is no power of two: p & {size - 1} is not p % {size}, and neither a shift nor a "
            f"product with 1 / {size} in float is a division by {size}."
        )
        pool, exact = marked([length], block_size=size), means([(length - 1) / 2])
        expect_decode(part, queries(1, 1, 256), pool, spec_of(256), what, why, exact=exact)


@task("16.1")
def test_a_pool_of_many_blocks(part: ModuleType) -> None:
    """The number of a block may be past 2**15: a large pool has more of them."""
    blocks = torch.zeros(40_000, 1, 1, 16)
    table = torch.arange(39_968, 40_000, dtype=torch.int32)[None]
    values = blocks.clone()
    values[table[0].long(), 0, 0] = torch.arange(32.0)[:, None]
    pool = Pool(blocks, values, table, torch.tensor([32], dtype=torch.int32))
    why = "A block table is int32, and so is the number of a block: 16 bits end at 32,767."
    what = "32 keys of zero in blocks 39,968 to 39,999, values 0 to 31: the mean"
    exact = means([15.5], dim=16)
    with blamed("out_of_bounds", why):
        expect_decode(part, queries(1, 1, 16), pool, spec_of(16), what, why, exact=exact)


@task("16.1")
def test_the_scale_is_applied_once(part: ModuleType) -> None:
    """A score is scale * query . key."""
    pool = marked([TURN])
    for position in range(TURN):
        # Each team has a key of score 0 and one of score 2: merging is not what this is about.
        pool.key_blocks[slot(pool, 0, position)] = 0.125 * (position // 4)
        pool.value_blocks[slot(pool, 0, position)] = position // 4
    found = run_parts(part, torch.ones(1, 1, 256), pool, spec_of(256), 1, 256)
    why = (
        "Half of the keys are 0, half 0.125 in all 256 dimensions; query 1, scale 1/16: scores 0 and 2, "
        "so that half weighs e^2 / (1 + e^2)."
    )
    weight = float(joined(found, [1])[0, 0, 0])
    usual = {
        1.0: "This is the weight without the scale: scores of 0 and 32.",
        0.5312094: "This is the weight with the scale twice: scores of 0 and 1/8.",
        0.5: "This is the weight if all scores are one: a team takes one of its two keys for both, say.",
        0.1192029: "This is the weight of the keys of score 0: keys and values of a turn are mixed up.",
    }
    told = [words for value, words in usual.items() if abs(weight - value) < 1e-4]
    if not abs(weight - 0.8807971) < 1e-4:
        what = "the weight of the keys of score 2"
        raise Mismatch(what, "0.8808", f"{weight:.4f}", " ".join([*told, why]))


@task("16.1")
def test_neighbouring_heads_share_a_key_head(part: ModuleType) -> None:
    """Head h reads key head h // group, with its own query, and writes its own row."""
    why = "Neighbours share: with 4 heads on 2, heads 0 and 1 read key head 0, heads 2 and 3 key head 1."
    for heads in (4, 6):
        pool = marked([TURN], kv_heads=2)
        for position in range(TURN):
            at = slot(pool, 0, position)
            for head in range(2):
                pool.key_blocks[at][head] = (1 + head) * (position // 4) / 32
                pool.value_blocks[at][head] = position // 4 + 10.0 * head
        q = (torch.arange(heads) / 4 - 0.5)[None, :, None].expand(1, heads, 256).contiguous()
        turns = torch.arange(heads).view(-1, 2).T.flatten()
        first = turns[: heads // 2].tolist()
        told = f"Key head 0 got the queries of heads {first}, key head 1 the others. {why}"
        taken = q[:, turns]
        kinds = {told: lambda q=taken, pool=pool: exact_decode(q, pool, spec_of(256))}
        what = f"{heads} heads on 2 key heads"
        expect_decode(part, q, pool, spec_of(256), what, why, kinds=kinds)


@task("16.1")
def test_the_last_keys_of_a_sequence(part: ModuleType) -> None:
    """Any number of keys is right, also one that fills no team's turn and no block."""
    lens = [1, 3, 4, 5, 15, 16, 17, 18]
    why = (
        f"{HIDDEN} A key that does not exist has no score at all, and no key is left out: {TEAMS}."
    )
    what = f"sequences of {lens} keys of zero"
    exact = means([(length - 1) / 2 for length in lens])
    last = [(length - 1.0, -length % TURN) for length in lens]  # of a sequence, and what it lacks
    sums = [
        (length - 1) * length / 2 + m * end for length, (end, m) in zip(lens, last, strict=True)
    ]
    counted = [total / (n + m) for total, n, (_, m) in zip(sums, lens, last, strict=True)]
    whole = [max(n // TURN * TURN, 1) for n in lens]
    kinds = {
        "The keys that are missing from a full turn of 8 were counted: each as the last key, which is "
        "read in its place, with a score of its own. A key that does not exist has no score: one of 0 "
        "would count.": lambda: means(counted),
        "Keys of a turn that is not full were left out.": lambda: means(
            [(n - 1) / 2 for n in whole]
        ),
    }
    expect_decode(
        part, queries(8, 1, 256), marked(lens), spec_of(256), what, why, exact=exact, kinds=kinds
    )


@task("16.1")
def test_teams_are_merged_by_their_weights(part: ModuleType) -> None:
    """Each team's sums count relative to the largest maximum of all teams."""
    pool = paged_pool([4], head_dim=256, kv_heads=1)
    for position, score in enumerate((0.0, 2.0, -1.0, 1.0)):
        pool.key_blocks[slot(pool, 0, position)] = score
    why = (
        f"Four keys of scores 0, 2, -1 and 1, one for each of four teams ({TEAMS}). Each team has its "
        "own place in shared memory, by the team's number, and each counts by its maximum."
    )
    q = torch.full((1, 1, 256), 0.0625)
    values = torch.stack([pool.value_blocks[slot(pool, 0, p)][0] for p in range(4)])
    kinds = team_kinds(torch.tensor([[0.0, 2.0, -1.0, 1.0]]), values)
    expect_decode(part, q, pool, spec_of(256), "4 keys, a team each", why, kinds=kinds)


@task("16.1")
def test_a_late_maximum_rescales_what_was_summed(part: ModuleType) -> None:
    """When a larger score arrives, sums and accumulated values of earlier keys are rescaled."""
    pool = paged_pool([40], head_dim=256, kv_heads=1)
    for position in range(40):
        pool.key_blocks[slot(pool, 0, position)] = position / 8
    why = (
        "Scores rise from key to key with head 0, over several turns of each team, and fall with head "
        "1. What a team has summed is relative to its maximum, head by head."
    )
    what, q = (
        "40 keys whose scores rise with one head and fall with another",
        torch.ones(1, 2, 256) / 8,
    )
    q[0, 1] *= -1
    values = torch.stack([pool.value_blocks[slot(pool, 0, p)][0] for p in range(40)])
    rising = torch.arange(40) / 4  # 256 * (p / 8) * (1 / 8) / 16
    kinds = team_kinds(torch.stack((rising, -rising)), values)
    expect_decode(part, q, pool, spec_of(256), what, why, kinds=kinds)


@task("16.1")
def test_a_maximum_that_rises_a_little(part: ModuleType) -> None:
    """However little a maximum rises, what was summed before is rescaled."""
    pool = in_one_block(4 * TURN)
    for position in range(4 * TURN):
        pool.key_blocks[0, position] = 0.004 / 16 * (position // TURN)
        pool.value_blocks[0, position] = float(position // TURN)
    scores = 0.004 * torch.arange(4).double().repeat_interleave(TURN)
    values = torch.arange(4).double().repeat_interleave(TURN)
    exact = means([float((scores.softmax(0) * values).sum())])
    why = "Scores rise by 0.004 from turn to turn: a rescale left out is an error of 0.4%."
    what = "32 keys in 4 turns, whose scores rise by 0.004 and whose values are 0, 1, 2, 3"
    expect_decode(part, torch.ones(1, 1, 256), pool, spec_of(256), what, why, exact=exact)


@task("16.1")
def test_scores_far_below_zero(part: ModuleType) -> None:
    """A running maximum begins at LOWEST, in a team and in the merge: scores may all be negative."""
    why = {
        -10.0: "A running maximum begins at LOWEST (see paged.cuh), and no number but scores and what "
        "it was before joins it.",
        -1000.0: "A running maximum begins at LOWEST (see paged.cuh). A key that does not exist has no "
        "number for a score: it is -infinity.",
    }
    for lowest in why:
        pool = paged_pool([12], head_dim=256, kv_heads=1)
        for position in range(12):
            pool.key_blocks[slot(pool, 0, position)] = lowest - position / 64
        what, q = f"12 keys with scores of {16 * lowest:,.0f} and less", torch.ones(1, 1, 256)
        expect_decode(part, q, pool, spec_of(256), what, why[lowest])


@task("16.1")
def test_small_weights_count(part: ModuleType) -> None:
    """A key counts by its weight, however small that is beside another's."""
    pool = in_one_block(3 * TURN)
    pool.value_blocks[0, : 3 * TURN] = 1000.0
    pool.key_blocks[0, 5], pool.value_blocks[0, 5] = 10 / 16, 0.0
    small = 23 * math.exp(-10)
    why = "23 keys weigh exp(-10) = 0.000045 each beside one of weight 1, and have values of 1,000."
    what = "24 keys, of which number 5 has the score 10 and the value 0"
    exact = means([1000 * small / (1 + small)])
    expect_decode(part, torch.ones(1, 1, 256), pool, spec_of(256), what, why, exact=exact)


@task("16.1")
def test_a_team_is_as_wide_as_its_row(part: ModuleType) -> None:
    """Rows of 16 to 128 elements belong to 2 to 16 lanes; rows of 80 and 96 leave some lanes idle."""
    why = (
        "A head of 64 has 8 lanes a key, so a warp holds 4 teams: each has scores of its own keys."
    )
    for dim in (64, 16, 80, 96, 128):
        pool, q = paged_pool([20], head_dim=dim, kv_heads=1), queries(1, 2, dim)
        expect_decode(part, q, pool, spec_of(dim), f"20 keys, 2 heads of {dim}", why)


@task("16.1")
def test_lanes_that_hold_two_scores(part: ModuleType) -> None:
    """8 heads with 2 keys are 16 scores for 8 lanes: each holds two, and a head is one lane's."""
    why = (
        "A turn of 2 keys with 8 heads has 16 scores, and a team for rows of 64 has 8 lanes: HELD is 2, "
        "PER_HEAD is 1. Lane l holds the scores of head l with both keys, and the second key may be "
        "past the end though the first is not."
    )
    pool = paged_pool([20], head_dim=64, kv_heads=1)
    expect_decode(part, queries(1, 8, 64), pool, spec_of(64), "20 keys, 8 heads of 64", why)


@task("16.1")
def test_each_head_has_its_own_maximum(part: ModuleType) -> None:
    """Heads whose scores are far apart share no maximum, in a team as little as in the merge."""
    pool = paged_pool([4], head_dim=256, kv_heads=1)
    for position in range(4):
        pool.key_blocks[slot(pool, 0, position)] = 12.5 if position == 3 else 0.0
    q = torch.tensor([1.0, -1.0, 1.0])[None, :, None].expand(1, 3, 256).contiguous()
    why = (
        "A maximum is that of one head, over the lanes of this head and then over all teams: "
        f"{TEAMS}."
    )
    what = "4 keys, of which the last has scores of 200, -200 and 200"
    expect_decode(part, q, pool, spec_of(256), what, why)


@task("16.1")
def test_sums_are_in_float32(part: ModuleType) -> None:
    """With bfloat16 keys and values, scores, weights and sums are float32."""
    pool = paged_pool([90], head_dim=64, kv_heads=1, block_size=16, dtype=torch.bfloat16)
    q = queries(1, 2, 64, dtype=torch.bfloat16)
    why = "A sum in half precision keeps 3 digits: convert what was loaded, then compute in float."
    expect_decode(part, q, pool, spec_of(64), "90 keys in bfloat16, joined", why)


@task("16.1")
def test_a_key_is_read_once_for_its_heads(part: ModuleType) -> None:
    """Each key and value is loaded once for all heads of its group, 16 bytes at a time."""
    pool = paged_pool([128], head_dim=64, kv_heads=1, block_size=16, dtype=torch.bfloat16)
    q = queries(1, 4, 64, dtype=torch.bfloat16)
    work = work_of(lambda: run_parts(part, q, pool, spec_of(64), 1, 256))
    stored = 2 * 128 * 64 * 2
    expect(
        work.loads.bytes < 2 * stored,
        f"keys and values are {stored} bytes, but {work.loads.bytes} were loaded for 4 heads on one",
        why="The four heads of a group want the same keys: load one, use it four times.",
    )
    expect(
        work.loads.count < 8000,
        f"threads executed {work.loads.count} loads for {stored} bytes of keys and values",
        why="Row.load takes 16 bytes with each of its loads: 2,048 are enough, and some for q.",
    )


@task("16.1")
def test_a_turn_has_few_exchanges(part: ModuleType) -> None:
    """Scores are summed by halves, and what was summed is rescaled only when a maximum rises."""
    pool = paged_pool([256], head_dim=64, kv_heads=1, block_size=16, dtype=torch.bfloat16)
    pool.key_blocks[:] = 0.0
    q = queries(1, 4, 64, dtype=torch.bfloat16)
    work = work_of(lambda: run_parts(part, q, pool, spec_of(64), 1, 256))
    turns = 4 * 256 // 64  # of 4 warps, which take 64 keys together
    most = 34 * turns
    expect(
        work.collectives <= most,
        f"{work.collectives} shuffles and votes for {turns} turns of a warp, of 16 scores in a team of "
        f"8 lanes; {most} are enough",
        why=EXCHANGES,
    )


HEAD_SIZES = st.sampled_from([16, 64, 80, 96, 128, 256])


@task("16.1")
@examples(12)
@given(
    lens=st.lists(st.integers(0, 40), min_size=1, max_size=2),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 1), (5, 1), (9, 1)]),
    dim=HEAD_SIZES,
    block_size=st.sampled_from([1, 4, 16, 5]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
)
def test_any_decode(
    part: ModuleType,
    lens: list[int],
    heads: tuple[int, int],
    dim: int,
    block_size: int,
    dtype: torch.dtype,
) -> None:
    """Any lengths, heads, head sizes, block sizes and dtypes give attention over the table's keys."""
    pool = paged_pool(lens, block_size=block_size, kv_heads=heads[1], head_dim=dim, dtype=dtype)
    what = f"{heads[0]} heads of {dim} on {heads[1]}, lens {lens}, blocks of {block_size}"
    q = queries(len(lens), heads[0], dim, dtype=dtype)
    expect_decode(part, q, pool, spec_of(dim), what, HIDDEN)
