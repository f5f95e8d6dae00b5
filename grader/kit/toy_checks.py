"""What must hold of every plan, `advance` and `update`, each with the mistake that usually breaks it."""

from collections.abc import Sequence

from grader.kit.expect import claiming, expect, expect_equal
from grader.kit.toy_parts import Settings, ToyParts
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request, RequestStatus

LEFT_ALONE = "`update` changes nothing of a request that has ended: its blocks are gone already."
NOT_FILED = (
    "Filing is for `update`, which runs once the result is there. What this step computes may not be "
    "filed yet, because the step may fail. What earlier steps computed is filed by their own `update`."
)
FILED = "`update` files (`commit`) what a chunk has computed, and the last token of a prompt."
FILED_AGAIN = (
    "`update` files (`commit`) what a chunk has computed, also output that is computed again after a "
    "preemption: requests that begin with these tokens wait until they are filed."
)
GONE_ON_THE_WAY = (RequestStatus.PREEMPTED, RequestStatus.SWAPPED)
WAITS = (
    "A request with more than one unread token waits: a step in flight may verify its drafts, and only "
    "the result says how many of them are right."
)


@claiming("Every plan can be carried out, within the limits of a step.")
def check_plan(toy: ToyParts, plan: StepPlan, had_work: bool) -> None:
    """A step computes something, within its limits, and each share is what it says."""
    expect(
        not had_work or plan.scheduled or plan.failed,
        "there is work, but the plan schedules no request and fails none",
        why=_why_idle(toy),
    )
    requests = [item.request for item in plan.scheduled]
    names = [request.request_id for request in requests]
    expect(len(set(names)) == len(names), f"a request is scheduled twice: {names}")
    both = [
        name for name, request in zip(names, requests, strict=True) if request in plan.preempted
    ]
    expect(
        not both,
        f"{', '.join(both)}: in both `scheduled` and `preempted` of one plan",
        why="A preemption takes a request's blocks at once. Make room in one walk by rank: then the "
        "requests that are preempted on the way are always ones whose turn has not come, and they are "
        "passed over when it comes.",
    )
    expect(
        len(names) <= toy.settings.max_num_seqs,
        f"{len(names)} requests are scheduled, but {toy.settings.max_num_seqs} may run at once",
        why="max_num_seqs limits how many run at once, old and new together.",
    )
    if not toy.settings.static:
        _check_budget(toy.settings, plan)
        _check_none_is_over(requests)
    for request in requests:
        expect(
            request.status is RequestStatus.RUNNING or request.is_finished,
            f"{request.request_id} is scheduled, but its status is {request.status.value}",
            why="Every request in a plan is RUNNING.",
        )
    for item in plan.scheduled:
        _check_share(item, toy.settings.block_size)


def _why_idle(toy: ToyParts) -> str:
    """Of a plan without work: whether there was room for some."""
    ends = "An engine that plans nothing steps for ever"
    stats = toy.cache.stats()
    room = stats["free_blocks"] + stats["cached_blocks"]
    runs = [request for request in toy.requests if request.status is RequestStatus.RUNNING]
    if runs and room:
        names = ", ".join(request.request_id for request in runs)
        return f"{ends}. {names} can go on: {room} blocks are free or can be evicted."
    return f"{ends}: a request that cannot run even alone must fail."


@claiming("In a plan single tokens stand before chunks.")
def check_order(plan: StepPlan) -> None:
    """Single tokens stand before chunks."""
    counts = [item.num_tokens for item in plan.scheduled]
    expect(
        [count > 1 for count in counts] == sorted(count > 1 for count in counts),
        f"the shares of the plan have {counts} tokens, in this order",
        why="That includes requests that were let in by this step. Attention computes the two kinds in "
        "different ways.",
    )


@claiming("`schedule` changes the tokens of no request.")
def check_tokens_stay(known: dict[Request, list[int]]) -> None:
    """Planning changes no request's tokens. known: what they were before."""
    for request, token_ids in known.items():
        expect_equal(
            request.token_ids, token_ids, f"the tokens of {request.request_id} after `schedule`",
            why="A preemption takes blocks, never tokens: those that were generated have been sent "
            "already. Their K and V are computed again, and the next token follows on the last.",
        )  # fmt: skip


def _check_budget(settings: Settings, plan: StepPlan) -> None:
    expect(
        plan.num_tokens <= settings.token_budget,
        f"the step computes {plan.num_tokens} tokens, but its budget is {settings.token_budget}",
        why="The budget counts every token that a step computes: of chunks and of decodes alike.",
    )


def _check_none_is_over(requests: Sequence[Request]) -> None:
    over = [request.request_id for request in requests if request.is_finished]
    expect(
        not over,
        f"{over} are scheduled, but have ended",
        why="A request that ends leaves `running` and the queue at once: its blocks may belong to "
        "another one now.",
    )


def _check_share(item: ScheduledRequest, block_size: int) -> None:
    request, name = item.request, item.request.request_id
    end = item.start + item.num_tokens
    expect(item.num_tokens >= 1, f"{name} is scheduled with {item.num_tokens} tokens",
           why="Without a token to compute there is no query, and no logits.")  # fmt: skip
    room = len(item.block_table) * block_size
    expect(end <= room, f"{name} computes up to position {end - 1} with blocks for {room} tokens",
           why="Blocks are allocated before a share enters the plan.")  # fmt: skip
    if request.is_finished:
        return
    expect_equal(item.start, request.num_computed_tokens, f"the first position of {name}",
                 why="A request goes on behind the tokens whose K and V it has.")  # fmt: skip
    expect_equal(
        item.samples, end == request.num_tokens,
        f"whether {name} samples, with tokens {item.start}..{end - 1} of {request.num_tokens}",
        why="Only the last token's logits say something new. A chunk that ends before it must "
        "not sample; the end of a sequence must, whether it is a prompt, a decode or what is "
        "computed again after a preemption.",
    )  # fmt: skip
    expect(
        request.num_output_placeholders <= 1,
        f"{name} is scheduled with {request.num_output_placeholders} unread tokens",
        why=WAITS,
    )
    drawn = request.num_tokens - request.num_prompt_tokens
    expect(
        not request.num_output_placeholders or drawn < request.max_tokens,
        f"{name} is scheduled, though a step in flight draws the last of its {request.max_tokens} "
        "tokens",
        why="With that token it ends, whatever the token is: what this step computes for it is thrown "
        "away.",
    )


class Advance:
    """What `advance` must make of a plan, made before it is called."""

    def __init__(self, toy: ToyParts, plan: StepPlan) -> None:
        self._toy = toy
        self._before = {item.request: item.request.num_computed_tokens for item in plan.scheduled}
        self._plan = plan
        self._num_filed = toy.tree.num_blocks if toy.tree is not None else 0

    @claiming("`advance` counts what a plan computes and draws, and does nothing else.")
    def check(self) -> None:
        for item in self._plan.scheduled:
            request = item.request
            moved = 0 if request.is_finished else item.num_tokens
            expect_equal(
                request.num_computed_tokens, self._before[request] + moved,
                f"num_computed_tokens of {request.request_id} after advance",
                why="The next step goes on behind what this one computes, up to the end of the chunk; "
                "the token that it draws has no K and V yet.",
            )  # fmt: skip
        if self._toy.tree is not None:
            filed = self._toy.tree.num_blocks - self._num_filed
            expect(filed == 0, f"advance has filed {filed} blocks in the tree", why=NOT_FILED)


class Update:
    """What `update` must make of a result, made before it is called."""

    def __init__(self, toy: ToyParts, plan: StepPlan, tokens: Sequence[Sequence[int]]) -> None:
        self._toy = toy
        self._plan = plan
        self._after: list[tuple[Request, list[int], int]] = []
        self._advanced: list[str] = []
        drawn = iter(tokens)
        for item in plan.scheduled:
            new = next(drawn) if item.samples else ()
            request, computed = item.request, item.request.num_computed_tokens
            if request.is_finished:
                self._after.append((request, list(request.token_ids), computed))
                continue
            if request.status is not RequestStatus.PREEMPTED:
                computed -= item.samples + len(item.drafts) - len(new)
            self._after.append((request, [*request.token_ids, *new], computed))
            self._advanced += [request.request_id] * bool(new)

    @claiming("`update` takes over what a step has computed and drawn.")
    def check(self, advanced: Sequence[Request]) -> None:
        expect(
            advanced is not None, "update returned None, and no list of requests",
            why="It returns a list in every case: an empty one if no request gained a token, as after "
            "chunks alone.",
        )  # fmt: skip
        names = [request.request_id for request in advanced]
        missing = [r.request_id for r, _, _ in self._after if r.status in GONE_ON_THE_WAY]
        why = "Those that gained tokens, in the order of the plan."
        if set(missing) & set(self._advanced) - set(names):
            why += (
                f" {', '.join(missing)} was preempted with this step in flight, and has not ended: the "
                "token is right, and it keeps it. Only a request that has ended is passed over."
            )
        elif set(names) - set(self._advanced):
            why += " A request that has ended since is passed over, and its tokens are dropped."
        expect_equal(names, self._advanced, "the requests that update returns", why=why)
        for request, token_ids, computed in self._after:
            name = request.request_id
            expect_equal(
                request.token_ids, token_ids, f"the tokens of {name} after update",
                why="There is a list of new tokens for each request that samples, in the order of the "
                "plan, also for one that has ended since: that one is passed over, with its tokens.",
            )  # fmt: skip
            expect_equal(
                request.num_computed_tokens, computed, f"num_computed_tokens of {name} after update",
                why=_why_computed(request.status),
            )  # fmt: skip
        for item in self._plan.scheduled:
            if item.request.status is RequestStatus.RUNNING:
                self._check_filed(item)

    def _check_filed(self, item: ScheduledRequest) -> None:
        """What others may wait for can be found."""
        request, tree = item.request, self._toy.tree
        if tree is None or item.drafts or (
            item.num_tokens == 1 and item.start + 1 != request.num_prompt_tokens
        ):  # fmt: skip
            return
        full = request.num_settled_tokens // self._toy.settings.block_size
        found = len(tree.peek(request.token_ids, full))
        expect(
            found == full,
            f"after update {found} of {full} blocks are filed that {request.request_id} has filled",
            why=FILED_AGAIN if item.start >= request.num_prompt_tokens else FILED,
        )


def _why_computed(status: RequestStatus) -> str:
    if status is RequestStatus.FINISHED:
        return LEFT_ALONE
    if status is RequestStatus.PREEMPTED:
        return "It was preempted, its blocks are gone, and its count is 0 and stays 0."
    if status is RequestStatus.SWAPPED:
        return (
            "Its blocks went to the host as they were, with K and V of its drafts. Drafts that were "
            "rejected are taken off its count, as if it ran."
        )
    return (
        "advance has counted the step already; update takes off drafts that were rejected, no more."
    )
