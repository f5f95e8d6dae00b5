"""Scheduler a step ahead: what is planned, kept and filed while results are not read yet."""

import pytest

from grader.kit.toy import Settings, Toy
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6


def names(toy: Toy) -> list[str]:
    return [item.request.request_id for item in toy.begin().scheduled]


def until_preempted(toy: Toy) -> Request:
    """Always a step in flight; the one before the preemption is not read when it returns."""
    toy.begin()
    while not (plan := toy.begin()).preempted:
        toy.take()
    return plan.preempted[0]


def crowd(num_host_blocks: int) -> Toy:
    toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks, prefix_caching=False))
    toy.add(A[:9], max_tokens=12)
    toy.add(B[:9], max_tokens=12)
    return toy


def num_cached(toy: Toy, token_ids: list[int]) -> int:
    return toy.cache.cached_tokens(Request("probe", [*token_ids, 0], SamplingParams()))


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("drafts", [0, 3])
def test_outputs_are_the_same_however_far_ahead(ahead: int, drafts: int) -> None:
    toy = Toy(Settings(num_blocks=12, token_budget=6, ahead=ahead, drafts=drafts))
    for prompt in (A[:9], B[:7], A[:13]):
        toy.add(prompt, max_tokens=8)
    assert toy.run() == toy.expected()


def test_urgent_prompt_leaves_running_decodes_their_token() -> None:
    toy = Toy(Settings(token_budget=4, num_blocks=30, policy="priority"))
    toy.add(A[:2], max_tokens=9, priority=1)
    toy.step()
    toy.add(B[:12], max_tokens=9, priority=0)
    for _ in range(4):
        assert [item.num_tokens for item in toy.step().scheduled] == [1, 3]


def test_request_is_not_scheduled_past_its_last_token() -> None:
    toy = Toy()
    toy.add(A[:5], max_tokens=2)
    assert [names(toy) for _ in range(3)] == [["r0"], ["r0"], []]


def test_request_waits_for_its_drafts() -> None:
    toy = Toy(Settings(drafts=2))
    toy.add(A[:5], max_tokens=9)
    toy.step()
    assert names(toy) == ["r0"]
    assert names(toy) == []
    toy.take()
    assert names(toy) == ["r0"]


def test_prompt_is_filed_with_its_result() -> None:
    toy = Toy()
    toy.add(A[:9], max_tokens=9)
    toy.begin()
    toy.begin()
    assert num_cached(toy, A[:9]) == 0
    toy.take()
    assert num_cached(toy, A[:9]) == 8


def test_request_that_ends_files_no_token_of_a_step_in_flight() -> None:
    toy = Toy()
    (request,) = toy.add(A[:7], max_tokens=9)
    toy.begin()
    toy.begin()
    toy.take()
    toy.finish(request, FinishReason.STOP)
    assert num_cached(toy, request.token_ids) == 4


@pytest.mark.parametrize("num_host_blocks", [0, 16])
def test_request_preempted_in_mid_flight_keeps_its_unread_token(num_host_blocks: int) -> None:
    toy = crowd(num_host_blocks)
    victim = until_preempted(toy)
    known = victim.num_output_tokens
    assert victim.num_output_placeholders == 1
    assert victim in toy.take()
    assert victim.num_output_tokens == known + 1
    assert toy.run() == toy.expected()


@pytest.mark.parametrize("num_host_blocks", [0, 16])
def test_request_preempted_in_mid_flight_stays_out_until_its_token_is_known(
    num_host_blocks: int,
) -> None:
    toy = crowd(num_host_blocks)
    until_preempted(toy)
    toy.finish(toy.requests[0])
    assert names(toy) == []
    while toy.in_flight:
        toy.take()
    assert names(toy) == ["r1"]


def test_lone_request_without_room_waits_for_the_token_that_may_end_it() -> None:
    toy = Toy(Settings(num_blocks=2))
    (request,) = toy.add(A[:8], max_tokens=9)
    toy.begin()
    assert toy.begin().failed == []
    toy.take()
    toy.finish(request, FinishReason.STOP)
    assert request.status is RequestStatus.FINISHED
    assert request.error is None


def test_rejected_drafts_are_not_computed() -> None:
    toy = Toy()
    (request,) = toy.add(A[:6], max_tokens=9)
    toy.step()
    right = toy.expected()[0][1]
    toy.begin({request: [right, (toy.expected()[0][2] + 1) % 5]})
    assert (request.num_computed_tokens, request.num_output_placeholders) == (9, 3)
    toy.take()
    assert (request.num_computed_tokens, request.num_tokens) == (8, 9)
    assert toy.run() == toy.expected()
