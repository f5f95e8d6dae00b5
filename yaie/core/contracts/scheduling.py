"""Lab 6: which requests run when, and what each step computes.

The engine also builds by name what stands beside it in the package: `POLICIES`, and `StaticScheduler`.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from yaie.core.batch import StepPlan
    from yaie.core.request import FinishReason, Request


# ANCHOR: scheduling_policy
class SchedulingPolicy(Protocol):
    """Lab 6. Ranks requests: the order of admission, and which keep their blocks when they run out.

    Rank decides among equals. In each step the running requests that need a single token come first,
    in ascending rank, then those that compute chunks, in ascending rank, with what budget is left. A
    long prompt keeps no request that is generating from its token, however high it ranks.

    No call costs more than O(log n) in the number of waiting requests, or a window of fixed size.
    """

    def rank(self, request: "Request") -> tuple[int, ...]:
        """A place in line; smaller is served first. The last one of all is preempted first."""
        ...

    def push(self, request: "Request") -> None:
        """A new request joins the queue."""
        ...

    def push_front(self, request: "Request") -> None:
        """A preempted request comes back, ahead of its equals that have not run yet."""
        ...

    def peek(self) -> "Request | None":
        """The next in the queue; None if it is empty."""
        ...

    def remove(self, request: "Request") -> None:
        """Take one request out of the queue, wherever it is."""
        ...

    def __len__(self) -> int: ...


# ANCHOR_END: scheduling_policy


# ANCHOR: scheduler
class Scheduler(Protocol):
    """Lab 6. Decides what each step computes. It is given a KVCacheManager and a SchedulingPolicy.

    A call costs the requests that run, and those that it lets in or sends back: not those that wait, nor
    the tokens that a request has.

    token_budget: tokens that the next step computes at most. The engine may set it between two steps.
    """

    token_budget: int

    def add(self, request: "Request") -> None:
        """Queue a request."""
        ...

    def schedule(self) -> "StepPlan":
        """Plan one step: which requests run, how many tokens each, what is swapped or copied before.

        While work exists the plan schedules at least one token or reports a failed request, unless all
        must wait for a step in flight. These wait: a request whose unread tokens are its last, or are
        drafts; one that was preempted in mid-flight; one whose prefix is in flight; a lone request
        without room, whose unread token may end it.
        """
        ...

    def advance(self, plan: "StepPlan") -> None:
        """The plan is on its way: move every request in it on as planned. Called once for each plan,
        before the next `schedule`.

        The tokens that it computes are in flight until `update`, those that it samples are *unread*.
        """
        ...

    def update(self, plan: "StepPlan", token_ids: "list[list[int]]") -> "list[Request]":
        """Take over the step's result. Called once for each plan, in order, after `advance`.

        token_ids: for each scheduled request that `samples`, in order, the tokens it sampled: one, up to
        one more than it had drafts, or none if it failed. Rejected drafts are taken back. What the step
        computed is filed for others now. Returns the requests that gained tokens and are still alive, in
        the same order; one that was finished since the plan was made is left as it is.
        """
        ...

    def finish(self, request: "Request", reason: "FinishReason") -> None:
        """End a request in any state, and give back what it holds. Twice is harmless."""
        ...

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    def check(self) -> None:
        """Verify that queues, statuses and block tables agree; raises InvariantError."""
        ...


# ANCHOR_END: scheduler
