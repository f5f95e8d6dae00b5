"""When blocks run out: who gives way, what survives of it, and who can never run."""

import pytest

from grader.kit.toy import Settings, Toy
from yaie.core.request import FinishReason, Request, RequestStatus

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6
RECOMPUTE, SWAP = 0, 16


def crowd(num_host_blocks: int, **settings: object) -> Toy:
    """Two requests that fit alone but, once they have grown, not together."""
    toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks, **settings))  # type: ignore[arg-type]
    toy.add(A[:9], max_tokens=12)
    toy.add(B[:9], max_tokens=12)
    return toy


def until_preempted(toy: Toy) -> Request:
    while not (plan := toy.step()).preempted:
        pass
    (victim,) = plan.preempted
    return victim


@pytest.mark.parametrize("num_host_blocks", [RECOMPUTE, SWAP])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preemption_does_not_show_in_the_output(num_host_blocks: int, prefix_caching: bool) -> None:
    toy = crowd(num_host_blocks, prefix_caching=prefix_caching)
    assert toy.run() == toy.expected()
    assert toy.requests[1].num_preemptions > 0


@pytest.mark.parametrize("num_host_blocks", [RECOMPUTE, SWAP])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 8])
def test_preempted_request_keeps_its_last_sampled_token(length: int, num_host_blocks: int) -> None:
    """At a block boundary as well: the victim has 12 tokens or so, give or take."""
    toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks, prefix_caching=False))
    toy.add(A[:12], max_tokens=12)
    toy.add(B[:length], max_tokens=12)
    victim = until_preempted(toy)
    kept = list(victim.token_ids)
    toy.run()
    assert victim.token_ids[: len(kept)] == kept
    assert toy.requests[1].output_token_ids == toy.expected()[1]


def test_recomputed_request_starts_from_nothing_and_swapped_from_where_it_was() -> None:
    recomputed = until_preempted(crowd(RECOMPUTE))
    swapped = until_preempted(crowd(SWAP))
    assert (recomputed.status, recomputed.num_computed_tokens) == (RequestStatus.PREEMPTED, 0)
    assert swapped.status is RequestStatus.SWAPPED
    assert swapped.num_computed_tokens == swapped.num_tokens - 1


def test_recomputed_request_finds_what_is_left_of_its_own_blocks() -> None:
    toy = crowd(RECOMPUTE)
    victim = until_preempted(toy)
    computed = toy.executor.num_computed
    while victim.status is not RequestStatus.RUNNING:
        toy.step()
    assert toy.run() == toy.expected()
    again = toy.executor.num_computed - computed
    assert again < victim.num_tokens + toy.requests[0].max_tokens


def test_swapped_request_computes_no_token_twice() -> None:
    toy = crowd(SWAP, prefix_caching=False)
    toy.run()
    assert toy.requests[1].num_preemptions > 0
    assert toy.executor.num_computed == 2 * (9 + 11)


def test_swap_recomputes_when_the_host_is_full() -> None:
    toy = crowd(num_host_blocks=1)
    assert until_preempted(toy).status is RequestStatus.PREEMPTED
    assert toy.run() == toy.expected()


def test_last_to_come_gives_way() -> None:
    assert until_preempted(crowd(RECOMPUTE)).request_id == "r1"


def test_preempted_requests_come_back_before_new_ones_and_in_order() -> None:
    toy = Toy(Settings(num_blocks=8, max_num_seqs=3))
    for prompt in (A[:10], B[:5], A[2:8]):
        toy.add(prompt, max_tokens=16)
    while not toy.requests[1].num_preemptions:
        toy.step()
    toy.add(B[3:7], max_tokens=2)
    admitted: list[str] = []
    while toy.alive:
        before = {r.request_id for r in toy.alive if r.status is RequestStatus.RUNNING}
        toy.step()
        now = [r for r in toy.requests if r.status is RequestStatus.RUNNING]
        admitted += [r.request_id for r in now if r.request_id not in before]
    assert admitted.index("r1") < admitted.index("r2") <= admitted.index("r3")
    assert [r.output_token_ids for r in toy.requests] == toy.expected()


def test_priority_preempts_the_lowest() -> None:
    toy = Toy(Settings(num_blocks=6, policy="priority"))
    toy.add(A[:5], max_tokens=12, priority=5)
    toy.add(B[:5], max_tokens=12, priority=-1)
    toy.add(A[3:8], max_tokens=12, priority=0)
    assert until_preempted(toy).priority == 5
    assert toy.run() == toy.expected()


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    toy = crowd(RECOMPUTE, max_num_seqs=2)
    toy.add([0], max_tokens=1)
    while not (plan := toy.step()).preempted:
        pass
    assert [item.request.request_id for item in plan.scheduled] == ["r0"]


def test_watermark_leaves_room_to_grow() -> None:
    toy = Toy(Settings(num_blocks=6, watermark=2))
    toy.add(A[:9], max_tokens=2)
    toy.add(B[:5], max_tokens=2)
    toy.step()
    assert toy.scheduler.num_running == 1, "3 + 2 blocks would leave 1"


def test_watermark_does_not_keep_out_the_only_request() -> None:
    toy = Toy(Settings(num_blocks=6, watermark=4))
    toy.add(A[:20], max_tokens=2)
    assert toy.run() == toy.expected()


def test_room_is_asked_for_the_whole_prompt_not_its_first_chunk() -> None:
    toy = Toy(Settings(num_blocks=6, token_budget=4))
    toy.add(A[:12], max_tokens=4)
    toy.add(B[:16], max_tokens=4)
    for _ in range(4):
        toy.step()
    assert toy.requests[1].status is RequestStatus.WAITING
    assert toy.run() == toy.expected()
    assert toy.requests[1].num_preemptions == 0


@pytest.mark.parametrize("length", [23, 24])
def test_request_may_fill_the_pool_to_the_last_slot(length: int) -> None:
    """The last token generated is never computed: 24 slots serve 25 tokens."""
    toy = Toy(Settings(num_blocks=6))
    (request,) = toy.add(A[:length], max_tokens=25 - length)
    toy.run()
    assert request.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("num_host_blocks", [RECOMPUTE, SWAP])
def test_request_that_outgrows_the_pool_alone_fails_and_the_queue_moves_on(
    num_host_blocks: int,
) -> None:
    toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks))
    (glutton,) = toy.add(A[:20], max_tokens=9)
    (next_one,) = toy.add(B[:9], max_tokens=3)
    toy.run()
    assert glutton.finish_reason is FinishReason.ERROR
    assert glutton.output_token_ids == toy.expected()[0][:5], "what fitted was right"
    assert next_one.output_token_ids == toy.expected()[1]


def test_prompt_that_no_empty_pool_could_hold_fails_at_once() -> None:
    toy = Toy(Settings(num_blocks=4))
    (too_long,) = toy.add(A[:17])
    (other,) = toy.add(B[:16])
    plan = toy.step()
    assert plan.failed == [too_long]
    assert "17 tokens" in (too_long.error or "")
    toy.run()
    assert other.finish_reason is FinishReason.LENGTH


def test_long_prompt_waits_for_room_rather_than_fail() -> None:
    toy = Toy(Settings(num_blocks=6))
    toy.add(A[:9], max_tokens=4)
    toy.add(B[:20], max_tokens=4)
    assert toy.run() == toy.expected()


@pytest.mark.parametrize("num_host_blocks", [RECOMPUTE, SWAP])
def test_preempted_request_can_be_aborted(num_host_blocks: int) -> None:
    toy = crowd(num_host_blocks)
    victim = until_preempted(toy)
    toy.scheduler.finish(victim, FinishReason.ABORT)
    toy.check()
    assert toy.blocks.num_free_host == num_host_blocks
    toy.run()
    assert toy.requests[0].output_token_ids == toy.expected()[0]


def test_blocks_that_are_cached_are_given_up_before_anybody_is_preempted() -> None:
    toy = Toy(Settings(num_blocks=6))
    toy.add(A)
    toy.run()
    assert toy.cache.stats()["cached_blocks"] == 6
    toy.add(B[:9], max_tokens=12)
    toy.run()
    assert toy.requests[1].num_preemptions == 0
