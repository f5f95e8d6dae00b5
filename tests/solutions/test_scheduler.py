"""Scheduler, rule by rule: what runs, how many tokens each, and when. Blocks have four slots."""

import pytest

from grader.kit.toy import Settings, Toy, toy_output
from yaie.core.batch import StepPlan
from yaie.core.errors import InvariantError
from yaie.core.request import FinishReason, RequestStatus

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6


def shares(plan: StepPlan) -> list[tuple[str, int, int]]:
    """(request, first position, number of tokens) of each that is scheduled."""
    return [(item.request.request_id, item.start, item.num_tokens) for item in plan.scheduled]


def test_prompt_is_computed_whole_and_then_one_token_a_step() -> None:
    toy = Toy()
    toy.add(A[:6], max_tokens=3)
    assert [shares(toy.step()) for _ in range(3)] == [
        [("r0", 0, 6)],
        [("r0", 6, 1)],
        [("r0", 7, 1)],
    ]
    assert toy.alive == []


def test_request_samples_only_when_its_last_known_token_is_computed() -> None:
    toy = Toy(Settings(token_budget=4))
    toy.add(A[:10], max_tokens=2)
    assert [toy.step().scheduled[0].samples for _ in range(4)] == [False, False, True, True]


def test_chunk_ends_where_the_budget_does() -> None:
    toy = Toy(Settings(token_budget=4))
    toy.add(A[:10])
    plans = [toy.step() for _ in range(3)]
    assert [shares(plan)[0][1:] for plan in plans] == [(0, 4), (4, 4), (8, 2)]


def test_budget_counts_only_tokens_that_are_computed() -> None:
    toy = Toy(Settings(token_budget=6))
    toy.add(A[:8])
    toy.run()
    toy.add([*A[:8], 4, 4, 4])
    toy.add(B[:3])
    assert shares(toy.step()) == [("r1", 8, 3), ("r2", 0, 3)]


def test_running_requests_come_before_new_ones() -> None:
    toy = Toy(Settings(token_budget=4))
    toy.add(A[:4], max_tokens=3)
    toy.step()
    toy.add(B[:8])
    assert shares(toy.step()) == [("r0", 4, 1), ("r1", 0, 3)]


def test_prefill_and_decode_share_a_step() -> None:
    toy = Toy()
    toy.add(A[:4], max_tokens=5)
    toy.step()
    toy.add(B[:5], max_tokens=2)
    assert shares(toy.step()) == [("r0", 4, 1), ("r1", 0, 5)]
    assert shares(toy.step()) == [("r0", 5, 1), ("r1", 5, 1)]


def test_no_more_run_than_max_num_seqs() -> None:
    toy = Toy(Settings(max_num_seqs=2))
    for i in range(3):
        toy.add([i, i], max_tokens=2)
    toy.step()
    assert (toy.scheduler.num_running, toy.scheduler.num_waiting) == (2, 1)
    toy.step()
    assert shares(toy.step()) == [("r2", 0, 2)]


def test_next_comes_in_with_the_step_after_one_has_ended() -> None:
    toy = Toy(Settings(max_num_seqs=2))
    toy.add(A[:2], max_tokens=1)
    toy.add(A[:3], max_tokens=9)
    toy.add(B[:3], max_tokens=1)
    toy.step()
    assert [name for name, _, _ in shares(toy.step())] == ["r1", "r2"]


def test_without_chunks_a_prompt_waits_until_it_fits_the_budget_whole() -> None:
    toy = Toy(Settings(token_budget=12, chunked_prefill=False))
    toy.add(A[:8], max_tokens=2)
    toy.add(B[:10], max_tokens=1)
    assert shares(toy.step()) == [("r0", 0, 8)]
    assert shares(toy.step()) == [("r0", 8, 1), ("r1", 0, 10)]


def test_prompt_beyond_the_budget_fails_without_chunks() -> None:
    toy = Toy(Settings(token_budget=8, chunked_prefill=False))
    (too_long,) = toy.add(A[:9])
    (other,) = toy.add(B[:3])
    toy.run()
    assert too_long.finish_reason is FinishReason.ERROR
    assert other.finish_reason is FinishReason.LENGTH


def test_nothing_to_do_gives_an_empty_plan() -> None:
    plan = Toy().step()
    assert plan == StepPlan()


def test_prefix_shared_within_a_step_is_computed_once() -> None:
    toy = Toy()
    toy.add([*A[:8], 1])
    toy.add([*A[:8], 2, 2])
    assert toy.run() == toy.expected()
    assert toy.executor.num_computed == 9 + 2
    assert toy.requests[1].num_cached_tokens == 8


def test_prefix_shared_by_many_is_computed_once() -> None:
    toy = Toy(Settings(num_blocks=40, max_num_seqs=8, token_budget=64))
    for i in range(8):
        toy.add([*A[:12], i % 5, i])
    assert toy.run() == toy.expected()
    assert toy.executor.num_computed == 14 + 7 * 2


def test_chunks_of_a_shared_prefix_are_taken_over_as_they_come() -> None:
    toy = Toy(Settings(token_budget=5, num_blocks=40))
    toy.add(A[:13])
    toy.add(A[:13])
    assert toy.run() == toy.expected()
    assert toy.executor.num_computed == 13 + 1


def test_request_waits_for_a_prefix_only_one_step() -> None:
    toy = Toy()
    toy.add(A[:9], max_tokens=6)
    toy.add(A[:9], max_tokens=1)
    assert shares(toy.step()) == [("r0", 0, 9)]
    assert shares(toy.step()) == [("r0", 9, 1), ("r1", 8, 1)]


def test_fully_cached_prompt_computes_one_token() -> None:
    toy = Toy()
    toy.add(A[:9])
    toy.run()
    toy.add(A[:9], max_tokens=2)
    assert shares(toy.step()) == [("r1", 8, 1)]
    assert toy.run() == toy.expected()


def test_second_turn_finds_the_first_answer_cached() -> None:
    toy = Toy()
    (first,) = toy.add(A[:7], max_tokens=6)
    toy.run()
    (second,) = toy.add([*first.token_ids, 1, 2])
    toy.run()
    assert second.num_cached_tokens == 12


def test_update_passes_over_a_request_that_ended_in_flight() -> None:
    toy = Toy()
    (gone,) = toy.add(A[:5], max_tokens=4)
    (here,) = toy.add(B[:5], max_tokens=4)
    toy.begin()
    toy.finish(gone)
    assert toy.take() == [here]
    assert gone.output_token_ids == []
    assert here.output_token_ids == toy.expected()[1][:1]


def test_update_returns_only_requests_that_gained_a_token() -> None:
    toy = Toy(Settings(token_budget=8))
    (short,) = toy.add(A[:3], max_tokens=4)
    toy.add(B[:12], max_tokens=4)
    toy.begin()
    assert toy.take() == [short]


def test_finish_is_harmless_twice() -> None:
    toy = Toy()
    (request,) = toy.add(A[:5])
    toy.run()
    toy.scheduler.finish(request, FinishReason.ABORT)
    assert request.finish_reason is FinishReason.LENGTH
    toy.check()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_abort_gives_everything_back_wherever_the_request_stands(steps: int) -> None:
    toy = Toy(Settings(token_budget=4))
    (request,) = toy.add(A[:10], max_tokens=9)
    for _ in range(steps):
        toy.step()
    toy.scheduler.finish(request, FinishReason.ABORT)
    toy.check()
    assert request.status is RequestStatus.FINISHED
    toy.cache.reset_prefix_cache()
    assert toy.blocks.num_free == toy.settings.num_blocks


def test_failed_request_leaves_no_block_in_the_cache_that_it_did_not_commit() -> None:
    toy = Toy()
    (request,) = toy.add(A[:8], max_tokens=4)
    toy.begin()
    toy.finish(request, FinishReason.ERROR)
    toy.take()
    assert toy.cache.stats()["cached_blocks"] == 0


def test_siblings_share_the_prompt_of_the_first() -> None:
    toy = Toy(Settings(num_blocks=30))
    toy.add(A[:10], max_tokens=4, n=3)
    assert toy.run() == toy.expected()
    first, *others = (toy_output(A[:10], 4, seed) for seed in range(3))
    assert first not in others
    assert [request.num_cached_tokens for request in toy.requests] == [0, 9, 9]
    assert toy.executor.num_computed == 10 + 2 * 1 + 3 * 3


def test_table_in_the_plan_keeps_its_blocks_while_forks_are_admitted() -> None:
    """r0 has filed what r2 then decodes into blocks of its own; r3 and r4 come when r0 and r1 end."""
    toy = Toy(Settings(max_num_seqs=3))
    toy.add([1, 2, 3], max_tokens=6)
    toy.add([4, 4], max_tokens=6)
    toy.add([1, 2, 3], max_tokens=12, n=3)
    assert toy.run() == toy.expected()


def test_check_finds_a_running_request_with_too_few_blocks() -> None:
    toy = Toy()
    (request,) = toy.add(A[:6], max_tokens=9)
    toy.step()
    request.num_computed_tokens += 4
    request.token_ids += [0] * 5
    with pytest.raises(InvariantError, match="r0 has computed 10 tokens but has blocks for 8"):
        toy.scheduler.check()
