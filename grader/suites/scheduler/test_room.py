"""Task 6.5: whether one more request has room, and what it holds if not."""

from typing import Any

from grader.kit import expect, expect_equal, note, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
from grader.suites.scheduler.bench import (
    A,
    B,
    crowd,
    expect_right,
    expect_shares,
    play_any,
    the_preempted,
)
from grader.suites.scheduler.parts import graded
from yaie.core.request import RequestStatus

ONE_STEP = (
    "What a step computes can be shared once its result is there. A request that waits that long takes "
    "it over; one that does not computes it a second time."
)
WHOLE = (
    "Room is asked for the whole sequence, though only its first chunk takes it now: a request that is "
    "admitted and cannot be finished is only preempted later."
)


@graded("6.5")
def test_a_request_that_is_not_admitted_holds_nothing(part: Any) -> None:
    """A request for which there is no room leaves no trace: no blocks, no computed tokens."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(A[:8], max_tokens=8)
    toy.step()
    (large,) = toy.add([*A[:4], *B[:16]], max_tokens=1)
    toy.step()
    why = "To look for room its table was started with the cached prefix; `free` undoes `admit`."
    expect_equal(toy.cache.block_table(large), [], "the block table of r1, which waits", why=why)
    expect_equal(large.num_computed_tokens, 0, "num_computed_tokens of r1, which waits", why=why)
    expect_equal(large.status, RequestStatus.WAITING, "the status of r1", why=why)


@graded("6.5")
def test_room_for_the_whole_sequence(part: Any) -> None:
    """A long prompt is admitted when all of it fits, not when its first chunk does."""
    toy = Toy(Settings(num_blocks=6, token_budget=4), part)
    toy.add(A[:12], max_tokens=4)
    (long,) = toy.add(B[:16], max_tokens=4)
    for _ in range(4):
        toy.step()
    expect_equal(long.status, RequestStatus.WAITING, "the status of r1, while r0 runs", why=WHOLE)
    expect_right(toy, WHOLE)
    expect_equal(long.num_preemptions, 0, "preemptions of r1", why=WHOLE)


@graded("6.5")
def test_a_preempted_request_comes_back_whole(part: Any) -> None:
    """A request that comes back computes prompt and output again, as much as the budget allows."""
    toy = crowd(part, prefix_caching=False)
    victim = the_preempted(toy)
    toy.finish(toy.requests[0])
    share = f"r1: tokens 0..{victim.num_tokens - 1}, samples"
    why = (
        "What remains is counted up to num_tokens: the output of a preempted request has lost its K and "
        "V as well, and with a budget of 16 all of it is computed in one step."
    )
    expect_shares(toy.step(), [share], why, "the step in which r1 comes back")


@graded("6.5")
def test_room_for_the_output_too(part: Any) -> None:
    """A preempted request is admitted when prompt and output fit, not when its prompt does."""
    for num_blocks, prompt in ((3, 4), (7, 9)):
        start_script()
        toy = Toy(Settings(num_blocks, token_budget=4, prefix_caching=False), part)
        toy.add(A[:prompt], max_tokens=16)
        toy.add(B[:prompt], max_tokens=16)
        victim = the_preempted(toy)
        taken, free = len(toy.cache.block_table(toy.requests[0])), toy.blocks.num_free
        toy.step()
        free -= len(toy.cache.block_table(toy.requests[0])) - taken
        tokens = victim.num_tokens
        why = (
            f"r1 has {tokens} tokens by now, and all of their {-(-tokens // 4)} blocks must fit: of "
            f"those tokens {prompt} are its prompt, which alone would take {-(-prompt // 4)}."
        )
        what = f"the status of r1, for which {free} blocks are free"
        expect_equal(victim.status, RequestStatus.PREEMPTED, what, why=why)


@graded("6.5")
def test_room_is_counted_in_blocks(part: Any) -> None:
    """A prompt that just fits beside the others is admitted, chunk by chunk or whole."""
    for budget in (3, 4, 5, 16):
        start_script()
        toy = Toy(Settings(num_blocks=5, token_budget=budget), part)
        toy.add([4], max_tokens=2)
        toy.add(B[:16], max_tokens=1)
        toy.step()
        expect_equal(
            toy.scheduler.num_running, 2, f"num_running with a budget of {budget}",
            why="r0 holds one of five blocks, and the 16 tokens of r1 need four: those that its chunk "
            "takes now and those that it takes later, none of them twice.",
        )  # fmt: skip


@graded("6.5")
def test_the_watermark(part: Any) -> None:
    """Beside others a request is admitted only if `watermark` blocks stay free; alone always."""
    toy = Toy(Settings(num_blocks=6, watermark=2), part)
    toy.add(A[:9], max_tokens=2)
    toy.add(B[:5], max_tokens=2)
    toy.step()
    why = "r0 needs 3 of 6 blocks and r1 2: 1 would be left for both to grow into."
    expect_equal(toy.scheduler.num_running, 1, "num_running with a watermark of 2", why=why)
    start_script()
    close = Toy(Settings(num_blocks=6, watermark=1), part)
    for prompt in (A[:9], B[:5]):
        close.add(prompt, max_tokens=2)
    close.step()
    why = "r0 needs 3 of 6 blocks and r1 2: 1 is left, as many as the watermark."
    expect_equal(close.scheduler.num_running, 2, "num_running with a watermark of 1", why=why)
    start_script()
    alone = Toy(Settings(num_blocks=6, watermark=4), part)
    alone.add(A[:24], max_tokens=1)
    why = (
        "The watermark counts only beside requests that run. With none, as many blocks must stay free "
        "as the rest of its own prompt needs, which are 2 here: keep_free=2."
    )
    expect_shares(alone.step(), ["r0: tokens 0..15"], why, "a prompt of all 6 blocks, alone")


@graded("6.5")
def test_the_watermark_beside_a_chunk(part: Any) -> None:
    """The blocks for the rest of a prompt and the watermark must both stay free."""
    for num_blocks, running in ((7, 1), (8, 2)):
        start_script()
        toy = Toy(Settings(num_blocks, token_budget=5, watermark=2), part)
        toy.add(A[:5], max_tokens=4)
        toy.step()
        toy.add(B[:14], max_tokens=1)
        toy.step()
        expect_equal(
            toy.scheduler.num_running, running, f"num_running in a pool of {num_blocks}",
            why="r0 has 2 blocks. The 14 tokens of r1 need 4, of which its chunk of 4 takes 1 now and 3 "
            "later; and 2 must stay free for both to grow into: 2 + 4 + 2 are 8.",
        )  # fmt: skip


@graded("6.5")
def test_one_that_is_not_admitted_keeps_its_place(part: Any) -> None:
    """A request that is considered and not admitted stays where it is in the queue."""
    toy = Toy(Settings(num_blocks=8, policy="lpm"), part)
    toy.add(A[:9])
    toy.run()
    toy.add(B[:9], max_tokens=12)
    toy.step()
    toy.add([4] * 21, max_tokens=1)
    toy.add([*A[:8], *[4] * 13], max_tokens=1)
    toy.step()
    toy.finish(toy.requests[1])
    note("toy.cache.reset_prefix_cache()")
    toy.cache.reset_prefix_cache()
    expect_shares(
        toy.step(), ["r2: tokens 0..15"],
        "r3 had the longest cached prefix and no room. Its prefix was evicted since then, so r2 is "
        "next, which waits longer. If r3 was taken out of the queue to be looked at and put back in "
        "front, it goes before r2.",
        "the step in which there is room again",
    )  # fmt: skip


@graded("6.5")
def test_without_chunks(part: Any) -> None:
    """Without chunked prefill a prompt waits until the budget takes all that is left of it."""
    toy = Toy(Settings(token_budget=12, chunked_prefill=False), part)
    toy.add(A[:8], max_tokens=2)
    toy.add(B[:10], max_tokens=1)
    why = "There are no chunks: r1 needs 10 tokens of the budget at once."
    expect_shares(toy.step(), ["r0: tokens 0..7, samples"], why, "the first step")
    shares = ["r0: token 8, samples", "r1: tokens 0..9, samples"]
    expect_shares(toy.step(), shares, why, "the second step")
    cached = Toy(Settings(token_budget=8, chunked_prefill=False), part)
    cached.add(A[:8])
    cached.run()
    cached.add([*A[:8], 4, 4, 4, 4])
    why = "8 of its 12 tokens are cached: the 4 that are left to compute fit the budget of 8."
    shares = ["r1: tokens 8..11, samples"]
    expect_shares(cached.step(), shares, why, "a prompt longer than the budget, most of it cached")


@graded("6.5")
def test_without_chunks_after_a_preemption(part: Any) -> None:
    """Without chunks a preempted request needs budget for its output too, not only its prompt."""
    toy = crowd(part, token_budget=11, chunked_prefill=False, prefix_caching=False)
    victim = the_preempted(toy)
    toy.finish(toy.requests[0])
    why = (
        "r1 has 12 tokens, 9 of them its prompt, and none is cached: all 12 are left to compute, and no "
        "step has a budget for that."
    )
    plan = toy.step()
    expect_shares(plan, [], why, "the step after r0 has ended, with a budget of 11")
    expect_equal(plan.failed, [victim], "the plan's failed requests", why=why)


@graded("6.5")
def test_the_watermark_beside_one_that_waits(part: Any) -> None:
    """The watermark is kept for requests that run, also if this step schedules none of them."""
    toy = Toy(Settings(num_blocks=6, watermark=2), part)
    toy.add(A[:9], max_tokens=1)
    toy.begin()
    toy.add(B[:5], max_tokens=2)
    why = (
        "r0 runs: it holds 3 of 6 blocks and waits for its last token. With r1's 2 one block would be "
        "left, and the watermark is 2. Whether others run says `_running`, not the plan."
    )
    expect_shares(toy.begin(), [], why, "the step while r0's last token is in flight")


@graded("6.5")
def test_the_watermark_for_one_that_comes_back(part: Any) -> None:
    """A preempted request is admitted again beside others only if `watermark` blocks stay free."""
    for num_host_blocks in (0, 16):
        start_script()
        settings = Settings(
            7, num_host_blocks=num_host_blocks, token_budget=32, watermark=1, prefix_caching=False
        )
        toy = Toy(settings, part)
        toy.add(A[:9], max_tokens=12)
        toy.add([4, 4], max_tokens=12)
        toy.add(B[:5], max_tokens=12)
        victim = the_preempted(toy)
        toy.finish(toy.requests[1])
        toy.step()
        status = RequestStatus.SWAPPED if num_host_blocks else RequestStatus.PREEMPTED
        why = (
            "r0 runs with 4 of 7 blocks, and r2 needs the other 3: none would stay free, and r2 would "
            "be preempted again as soon as r0 grows. Those that come back are admitted by the same "
            "rule, from the host as well."
        )
        expect_equal(
            victim.status, status, "the status of r2, for which 3 blocks are free", why=why
        )


@graded("6.5")
def test_a_recomputed_request_is_matched_anew(part: Any) -> None:
    """A request that comes back after a preemption starts from what the cache has now."""
    toy = crowd(part, prefix_caching=False)
    victim = the_preempted(toy)
    note("r1.num_computed_tokens = 5")
    victim.num_computed_tokens = 5  # as a scheduler may leave it: it is not read while it waits
    why = (
        "Its blocks are gone, whatever num_computed_tokens still says: only what `admit` finds counts. "
        "A stale count would have it read blocks that were never filled."
    )
    while victim.status is not RequestStatus.RUNNING and toy.alive:
        plan = toy.step()
        starts = [item.start for item in plan.scheduled if item.request is victim]
        expect(
            starts in ([], [0]), f"r1 goes on at position {starts}, with nothing cached", why=why
        )
    expect_right(toy, why)


@graded("6.5")
def test_a_swapped_request_goes_on_where_it_was(part: Any) -> None:
    """A request that was swapped out comes back through swap_in, and computes no token twice."""
    toy = crowd(part, num_host_blocks=16, prefix_caching=False)
    why = "Its K and V lie in the host pool: they are copied back, not computed again."
    expect_right(toy, why)
    expect_equal(toy.executor.num_computed, 2 * (9 + 11), "tokens computed for both", why=why)


@graded("6.5")
def test_running_requests_stand_in_order_of_rank(part: Any) -> None:
    """A new request takes its place among those that run by rank, not at the end."""
    toy = Toy(Settings(num_blocks=6, policy="priority"), part)
    toy.add(A[:5], max_tokens=12, priority=5)
    toy.step()
    toy.add(B[:5], max_tokens=12, priority=-1)
    toy.add(A[3:8], max_tokens=12, priority=0)
    preempted = [the_preempted(toy).request_id]
    why = "The last in rank is preempted: that is r0, though it was admitted first."
    expect_equal(preempted, ["r0"], "which request is preempted when blocks run out", why=why)


@graded("6.5")
def test_any_life(part: Any) -> None:
    """Whatever arrives and crowds the pool: what is admitted has room, and the tokens are right."""
    play_any(part, any_settings(), 20)
