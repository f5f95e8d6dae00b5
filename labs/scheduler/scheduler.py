# Lab 6, your part (edition 2): tasks 6.4, 6.5, 6.6, 6.7, 6.8, 6.9. The rest is given.
"""Decides what each step computes: continuous batching (Yu et al. 2022, Orca) with chunked prefill
(Agrawal et al. 2023, Sarathi) and preemption.

A request needs the K and V of all its tokens but has those of the first `num_computed_tokens`. Every
step moves that number on, by a whole prompt, a chunk of one, or one token; which of these it is, the
scheduler does not ask. Called by the step loop of the engine.
"""

from bisect import bisect_left, insort

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus

from .agreement import check_agreement


# ANCHOR: given
class Scheduler:
    """See `yaie.core.contracts.Scheduler`.

    max_num_seqs: requests that run at once. token_budget: tokens a step computes at most.
    swap: preempt by moving blocks to the host while it has room, otherwise by recomputing.
    watermark: blocks that admitting a request leaves free while others run, for them to grow into.
    """

    def __init__(
        self,
        cache: KVCacheManager,
        policy: SchedulingPolicy,
        *,
        max_num_seqs: int,
        token_budget: int,
        chunked_prefill: bool = True,
        swap: bool = False,
        watermark: int = 0,
    ) -> None:
        self._cache = cache
        self._policy = policy
        self._max_num_seqs = max_num_seqs
        self.token_budget = token_budget
        self._chunked_prefill = chunked_prefill
        self._swap = swap
        self._watermark = watermark
        self._running: list[Request] = []  # in order of rank

    # ANCHOR_END: given

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._policy)

    @property
    def _num_rows(self) -> int:
        """Rows of a step that are taken; a static batch also counts those that have ended."""
        return len(self._running)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._policy.push(request)

    # ANCHOR: schedule
    def schedule(self) -> StepPlan:
        """Plan one step: those that run go on, then the queue moves up into what budget is left.

        A step that preempts admits no request. In `plan.scheduled` single tokens come before chunks.
        The moves that the cache has promised (`take_moves`) go into the plan.
        """
        # TODO 6.4: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    def _continue_running(self, plan: StepPlan) -> int:
        """Schedule the running requests; returns the budget that is left.

        Requests that want a single token (`_num_wanted`) share the budget first, in order of rank.
        Those that want more share the rest, in order of rank, each as much as is left for it. A share
        for which there is no room costs nothing.

        Room is made (`_make_room`) in a single walk over all of them in order of rank. A request that
        is preempted on the way is then always one whose turn has not come yet; it gets no share.
        """
        # TODO 6.4: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    def _put(self, plan: StepPlan, request: Request, num_tokens: int) -> None:
        """Enter a request's share into the plan: its next `num_tokens` tokens, with the cache's own list
        of its blocks.

        It samples if the last token that the request has or will have (`num_tokens`, unread tokens
        included) is among them.
        """
        # TODO 6.4: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR_END: schedule

    # ANCHOR: admit
    def _try_admit(self, request: Request, budget: int) -> int:
        """Let a waiting request in, with its blocks; returns how many tokens it may compute, or 0.

        Its table starts with the cached prefix (`admit`), or comes back from the host (`swap_in`). Room
        is asked for the whole sequence though only its first chunk takes it now: the blocks for the
        rest, and the watermark if others run, must stay free (`keep_free`). Without chunked prefill
        the budget must do for all that is left to compute. An admitted request is RUNNING, and is
        in `_running` by rank; one that is not holds nothing and stays in the queue.
        """
        # TODO 6.5: your code here (the reference: 18 lines).
        raise NotImplementedError(
            "scheduler task 6.5: not implemented yet; see chapter The scheduler"
        )

    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        """Let the queue in, one by one, until budget, blocks or rows (`_num_rows`) are used up.

        No request overtakes the next in the queue (`peek`). That one waits if it was preempted with a
        step in flight (`num_in_flight`), or if another computes the prefix that it needs (`is_pending`).
        If it cannot be admitted although none runs, it fails (`_fail`).
        """
        # TODO 6.6: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.6: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR: fail
    def _fail(self, request: Request, plan: StepPlan) -> None:
        """End a request that does not fit even alone; the queue behind it moves on."""
        request.failure = FailureKind.CAPACITY
        request.error = (
            f"the request needs room for {request.num_tokens} tokens at once, which the engine does not "
            "have even when it is empty; send a shorter one, or raise num_blocks or token_budget"
        )
        self.finish(request, FinishReason.ERROR)
        plan.failed.append(request)

    # ANCHOR_END: fail
    # ANCHOR_END: admit

    # ANCHOR: preempt
    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        """Have blocks for the request's next tokens, preempting from the end of the line.

        False if the request itself had to go. If it is the only one that runs, it fails (`_fail`),
        unless it has tokens in flight: then it stays for another step, since they may be its last.
        """
        # TODO 6.7: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "scheduler task 6.7: not implemented yet; see chapter The scheduler"
        )

    def _preempt_last(self, plan: StepPlan) -> Request:
        """Take the last request's place and blocks; it goes back to the front of the queue.

        It is SWAPPED if it may go to the host (`swap`) and the host has room. Otherwise it is PREEMPTED
        and has computed nothing. What is in flight and unread stays so until `update`.
        """
        # TODO 6.7: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.7: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR_END: preempt

    # ANCHOR: update
    def advance(self, plan: StepPlan) -> None:
        """The plan was sent: its tokens count as computed and as in flight, and those that it samples
        as unread: one for each share that samples, and one more for each draft.

        The step loop adds drafts to the plan after `schedule`; here they are only counted. Nothing is
        filed, and a request that has ended is left alone.
        """
        # TODO 6.8: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "scheduler task 6.8: not implemented yet; see chapter The scheduler"
        )

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        """Take over a step's result, which is only read; returns the requests that gained tokens, in the
        plan's order.

        token_ids: a list for each share that samples, those of ended requests included. It is empty if
        the step failed for that request, which the step loop has ended before.

        What `advance` added to the tokens in flight and unread is taken off again. A share that samples
        with k drafts promised 1 + k tokens. As many as did not come are taken off `num_computed_tokens`,
        of a SWAPPED request too. The count of a PREEMPTED one is 0 and stays 0.

        For a request that runs, what others may look for is filed in the cache (`commit`): every chunk,
        also behind the end of the prompt, and the last token of a prompt. Blocks that decodes fill may
        wait until the request ends. A request that has ended since the plan was made is left alone.
        """
        # TODO 6.8: your code here (the reference: 19 lines).
        raise NotImplementedError(
            "scheduler task 6.8: not implemented yet; see chapter The scheduler"
        )

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request in any state, and give back what it holds; harmless if it has ended.

        It first leaves `_running` or the queue, then `_release` gives back its blocks: StaticScheduler's
        looks whether others run. Until then the request's counts stay, since they say what is filed.
        """
        # TODO 6.9: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "scheduler task 6.9: not implemented yet; see chapter The scheduler"
        )

    def _release(self, request: Request, reason: FinishReason) -> None:
        """Give back the blocks of a request that ends; the content of a failed one is not kept."""
        self._cache.free(request, keep=reason is not FinishReason.ERROR)

    # ANCHOR_END: update

    def check(self) -> None:
        """Raise InvariantError unless queues, statuses and blocks agree; see `agreement.py`."""
        check_agreement(self._running, self._policy, self._cache)


def _num_wanted(request: Request) -> int:
    """How many tokens a running request would compute next: those that have no K and V yet.

    0 while only a step in flight can tell how it goes on: the last of its `max_tokens` is unread, or
    more than one token is (`num_output_placeholders > 1`), since drafts are verified then. A request is
    therefore never planned behind more than one unread token.
    """
    # TODO 6.4: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "scheduler task 6.4: not implemented yet; see chapter The scheduler"
    )
