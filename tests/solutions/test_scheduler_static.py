"""StaticScheduler: a batch is filled, runs to the end of its last request, and then comes the next."""

from grader.kit.toy import Settings, Toy
from yaie.core.batch import StepPlan
from yaie.core.request import FinishReason, RequestStatus

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6


def static(**settings: int) -> Toy:
    return Toy(Settings(static=True, num_blocks=settings.pop("num_blocks", 30), **settings))  # type: ignore[arg-type]


def names(plan: StepPlan) -> list[str]:
    return [item.request.request_id for item in plan.scheduled]


def test_nobody_joins_a_batch_that_runs() -> None:
    toy = static()
    toy.add(A[:4], max_tokens=3)
    toy.step()
    toy.add(B[:4], max_tokens=1)
    assert [names(toy.step()) for _ in range(3)] == [["r0"], ["r0"], ["r1"]]


def test_request_that_ends_early_keeps_its_row_and_computes_for_nothing() -> None:
    toy = static(max_num_seqs=2)
    toy.add(A[:4], max_tokens=1)
    toy.add(B[:4], max_tokens=4)
    toy.add(A[2:6], max_tokens=1)
    assert [sorted(names(toy.step())) for _ in range(5)] == [["r0", "r1"]] * 4 + [["r2"]]
    assert toy.executor.num_computed == 4 + (4 + 3) + 3 + 4


def test_ended_row_keeps_its_blocks_until_the_batch_ends() -> None:
    toy = static()
    (short,) = toy.add(A[:4], max_tokens=1)
    toy.add(B[:4], max_tokens=3)
    toy.step()
    assert short.is_finished
    assert toy.cache.block_table(short)
    toy.run()
    assert toy.cache.block_table(short) == []


def test_batch_is_filled_over_several_steps_if_the_budget_is_short() -> None:
    toy = static(token_budget=6)
    toy.add(A[:6], max_tokens=4)
    toy.add(B[:6], max_tokens=4)
    assert [sorted(names(toy.step())) for _ in range(3)] == [["r0"], ["r0", "r1"], ["r0", "r1"]]


def test_outputs_are_those_of_continuous_batching() -> None:
    toy = static(max_num_seqs=3)
    for i, count in enumerate((5, 1, 3, 7, 2)):
        toy.add(A[: 3 + i], max_tokens=count)
    assert toy.run() == toy.expected()


def test_aborting_the_last_request_of_a_batch_frees_every_row() -> None:
    toy = static()
    toy.add(A[:4], max_tokens=1)
    (running,) = toy.add(B[:4], max_tokens=9)
    toy.step()
    toy.scheduler.finish(running, FinishReason.ABORT)
    toy.check_empty()


def test_ended_row_does_not_cost_a_live_request_its_blocks() -> None:
    toy = static(num_blocks=4)
    toy.add(A[:4], max_tokens=1)
    (live,) = toy.add(B[:4], max_tokens=12)
    toy.run()
    assert live.finish_reason is FinishReason.LENGTH


def test_rows_are_no_more_than_the_seats() -> None:
    toy = static(max_num_seqs=2, token_budget=2)
    toy.add([1], max_tokens=9)
    for _ in range(4):
        toy.add([2], max_tokens=1)
    while toy.alive:
        assert len(toy.step().scheduled) <= 2


def test_row_of_a_request_that_failed_in_its_first_step_is_harmless() -> None:
    toy = static()
    (broken,) = toy.add(A[:4], max_tokens=4)
    toy.add(B[:4], max_tokens=3)
    toy.begin()
    toy.finish(broken, FinishReason.ERROR)
    toy.take()
    assert toy.run()[1] == toy.expected()[1]


def test_ended_rows_write_to_no_block_that_others_read() -> None:
    toy = static()
    toy.add(A[:8], max_tokens=6)
    toy.run()
    toy.add([*A[:8], 0], max_tokens=4)
    (ends_early,) = toy.add(A[:8], max_tokens=1)
    toy.step()
    assert ends_early.is_finished
    toy.cache.commit(toy.requests[1])
    shared = set(toy.cache.block_table(toy.requests[1]))
    (row,) = (item for item in toy.scheduler.schedule().scheduled if item.request is ends_early)
    assert not {slot // 4 for slot in toy.executor.slots(row)} & shared


def test_preempted_request_waits_for_the_next_batch() -> None:
    toy = static(num_blocks=6)
    toy.add(A[:9], max_tokens=12)
    (victim,) = toy.add(B[:9], max_tokens=12)
    while victim.status is not RequestStatus.PREEMPTED:
        toy.step()
    toy.step()
    assert victim.status is RequestStatus.PREEMPTED
    assert toy.run() == toy.expected()
