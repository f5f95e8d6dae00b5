"""Task 6.9: how a request ends, in any state."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
from grader.suites.scheduler.asked import ASKED
from grader.suites.scheduler.bench import (
    A,
    B,
    cached,
    counts_at_free,
    crowd,
    expect_right,
    play_any,
    until_preempted,
)
from grader.suites.scheduler.parts import graded
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

GONE = (
    "It ended while the step was in flight. Its tokens in the result are dropped: they are passed over, "
    "and the next list in the result is the next request's."
)
AT_ONCE = (
    "What was computed is filed when the result is there: others that begin alike find it while the "
    "first is still running."
)
GIVEN_BACK = (
    "A request that ends leaves the queue or its place among those that run, with all its blocks."
)


OVER = (
    "What the step in flight computes for it is dropped: no count and no token changes, and nothing is "
    "filed."
)
COUNTS_GONE = (
    " When `free` was called, num_in_flight of r0 was 0: `free` took all 8 tokens for computed."
)
NOT_FREED = (
    "`finish` did not call `free` for r1, which is swapped out. `free` gives back the host blocks of "
    "such a request too."
)
TRUSTED = (
    "Others may only be given K and V of steps whose result is there: a step in flight may fail."
)


@graded("6.9")
def test_an_answer_is_kept(part: Any) -> None:
    """What an ended request has computed is cached, its output too."""
    toy = Toy(Settings(), part)
    (first,) = toy.add(A[:7], max_tokens=6)
    toy.run()
    (second,) = toy.add([*first.token_ids, 1, 2])
    toy.run()
    why = (
        "The next turn of a conversation begins with this answer, so its blocks are worth keeping."
    )
    expect_equal(second.num_cached_tokens, 12, "cached tokens of the second turn", why=why)


@graded("6.9")
def test_a_failed_request_is_not_kept(part: Any) -> None:
    """Nothing that a failed request computed is offered to others."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:3], max_tokens=12)
    for _ in range(8):
        toy.step()
    again = Request("again", list(request.token_ids), SamplingParams())
    filed = toy.cache.cached_tokens(again)
    toy.finish(request, FinishReason.ERROR)
    expect(
        toy.cache.cached_tokens(again) <= filed,
        "what a failed request computed is filed in the cache as it ends",
        why="K and V of a step that went wrong may be wrong: `free` with keep=False.",
    )
    start_script()
    toy = Toy(Settings(), part)
    (request,) = toy.add(B[:3], max_tokens=12)
    for _ in range(8):
        toy.step()
    toy.finish(request, FinishReason.ABORT)
    expect_equal(
        cached(toy, request.token_ids), 8, "cached tokens of an aborted request that had computed 10",
        why="A client that leaves has not made the K and V wrong. Only an error has.",
    )  # fmt: skip


@graded("6.9")
def test_how_it_ended(part: Any) -> None:
    """finish sets status and reason once; a second finish is harmless and changes neither."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:5])
    (other,) = toy.add(B[:5], max_tokens=9)
    toy.step()
    expect_equal(request.status, RequestStatus.FINISHED, "the status of r0")
    expect_equal(request.finish_reason, FinishReason.LENGTH, "the finish reason of r0")
    toy.finish(request, FinishReason.ABORT)
    expect_equal(
        request.finish_reason, FinishReason.LENGTH, "its finish reason after a second finish",
        why="A client may leave at the moment in which its answer is complete. The first reason stays.",
    )  # fmt: skip
    expect_equal(other.status, RequestStatus.RUNNING, "the status of r1, which has not ended")
    expect_right(toy, "The second finish must not touch another request.")


@graded("6.9")
def test_every_reason_is_told(part: Any) -> None:
    """The reason that finish is given stands in the request, an error like any other."""
    for reason in FinishReason:
        start_script()
        toy = Toy(Settings(), part)
        (request,) = toy.add(A[:5], max_tokens=9)
        toy.step()
        toy.finish(request, reason)
        why = (
            "Clients and counters read the reason from the request: finish sets it, whatever it is."
        )
        expect_equal(request.finish_reason, reason, "the finish reason of r0", why=why)


@graded("6.9")
def test_abort_before_its_first_step_is_sent(part: Any) -> None:
    """A request that ends between `schedule` and `advance` has blocks already, and gives them back."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:9], max_tokens=9)
    toy.schedule()
    toy.finish(request)
    why = f"It was admitted with its blocks, though it has computed nothing yet. {GIVEN_BACK}"
    expect_equal(toy.cache.block_table(request), [], "the block table of r0", why=why)
    expect_equal(toy.blocks.num_free, toy.settings.num_blocks, "free blocks", why=why)


@graded("6.9")
def test_the_right_one_of_many(part: Any) -> None:
    """Of many that run or wait, the one that is ended is the one that was meant."""
    for index in range(6):
        start_script()
        toy = Toy(Settings(num_blocks=40, max_num_seqs=4, policy="priority"), part)
        for priority in (1, 0, 2, 0, 1, 3):
            toy.add([priority, 1, 2], max_tokens=3, priority=priority)
        toy.step()
        gone = toy.requests[index]
        toy.finish(gone)
        toy.run()
        for request in toy.requests:
            reason = FinishReason.ABORT if request is gone else FinishReason.LENGTH
            what = f"how {request.request_id} ends, when {gone.request_id} is aborted"
            expect_equal(request.finish_reason, reason, what, why=GIVEN_BACK)


@graded("6.9")
def test_abort_at_any_point(part: Any) -> None:
    """An aborted request gives everything back: while it waits, between chunks, and as it decodes."""
    for steps in range(6):
        start_script()
        toy = Toy(Settings(token_budget=4), part)
        (request,) = toy.add(A[:10], max_tokens=9)
        for _ in range(steps):
            toy.step()
        toy.finish(request)
        expect_equal(toy.scheduler.num_running, 0, "num_running", why=GIVEN_BACK)
        expect_equal(toy.scheduler.num_waiting, 0, "num_waiting", why=GIVEN_BACK)
        expect_all_free(toy)


@graded("6.9")
def test_abort_after_a_preemption(part: Any) -> None:
    """A preempted request can be aborted: it leaves the queue, and the host pool too."""
    for num_host_blocks in (0, 16):
        start_script()
        toy = crowd(part, num_host_blocks)
        for victim in until_preempted(toy):
            toy.finish(victim)
        expect_equal(toy.scheduler.num_waiting, 0, "num_waiting", why=GIVEN_BACK)
        free, made = toy.blocks.num_free_host, ASKED.made("cache.free")
        why = NOT_FREED if made is not None and "finish" not in made else GIVEN_BACK
        expect_equal(free, num_host_blocks, "free host blocks", why=why)
        toy.run()
        expected = toy.expected()[0]
        expect_equal(toy.requests[0].output_token_ids, expected, "the output of r0", why=GIVEN_BACK)
        expect_all_free(toy)


@graded("6.9")
def test_the_last_of_a_static_batch(part: Any) -> None:
    """When the last request of a static batch ends, all rows of the batch are dropped."""
    if part.StaticScheduler is None:
        return  # it does not build on the stub's methods
    toy = Toy(Settings(static=True), part)
    toy.add(A[:5], max_tokens=1)
    toy.add(B[:5], max_tokens=3)
    expect_right(toy, GIVEN_BACK)
    expect_all_free(toy)


def expect_all_free(toy: Toy) -> None:
    """All have ended, and once the cache is emptied every block is free."""
    toy.cache.reset_prefix_cache()
    free, total = toy.blocks.num_free, toy.settings.num_blocks
    expect_equal(free, total, "free blocks of the empty engine", why=GIVEN_BACK)


@graded("6.9")
def test_only_settled_tokens_are_filed(part: Any) -> None:
    """Of a request that ends with a step in flight only what has a result is filed."""
    well: list[str] = []
    for reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT):
        start_script()
        toy = Toy(Settings(), part)
        (request,) = toy.add(A[:7], max_tokens=9)
        toy.begin()
        toy.begin()
        toy.take()
        freed = counts_at_free(toy, request)
        toy.finish(request, reason)
        why = (
            "7 of its tokens were computed by a step with a result. Its eighth, the last of a block, is "
            "computed by the step in flight."
        )
        if freed and freed[0] == (8, 0):
            why += COUNTS_GONE + f" With {' and '.join(well)} it was not." * bool(well)
        what = "cached tokens of the 8 that r0 has"
        expect_equal(cached(toy, request.token_ids), 4, what, why=why)
        toy.take()
        expect_equal(
            cached(toy, request.token_ids), 4, "cached tokens after that step's result", why=OVER
        )
        well.append(f"FinishReason.{reason.name}")


@graded("6.9")
def test_a_failed_step_leaves_nothing(part: Any) -> None:
    """Nothing of a request is filed that failed while its prompt was in flight."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:9], max_tokens=9)
    toy.begin()
    toy.begin()
    toy.finish(request, FinishReason.ERROR)
    toy.take()
    toy.take()
    expect_equal(cached(toy, A[:9]), 0, "cached tokens of a prompt whose step failed", why=TRUSTED)


@graded("6.9")
def test_any_life(part: Any) -> None:
    """Requests end and are aborted at any point: the others go on, and nothing leaks."""
    play_any(part, any_settings(most_drafts=1), 15, most_siblings=2)
