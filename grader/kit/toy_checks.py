"""What must hold in the toy engine around every step, each with the mistake that usually breaks it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grader.kit.expect import Mismatch, expect, expect_equal
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

if TYPE_CHECKING:
    from grader.kit.toy import Settings, Toy


def check_plan(toy: "Toy", plan: StepPlan, had_work: bool) -> None:
    """A step computes something, within its budget and seats, and each share is what it says."""
    expect(
        not had_work or plan.scheduled or plan.failed,
        "there is work, but the plan schedules nobody and fails nobody",
        why="An engine that plans nothing steps for ever: whoever cannot run even alone must fail.",
    )
    requests = [item.request for item in plan.scheduled]
    names = [request.request_id for request in requests]
    expect(len(set(names)) == len(names), f"somebody is scheduled twice: {names}")
    expect(
        len(names) <= toy.settings.max_num_seqs,
        f"{len(names)} requests are scheduled, but there are {toy.settings.max_num_seqs} seats",
        why="max_num_seqs limits how many run at once, old and new together.",
    )
    if not toy.settings.static:
        _check_budget(toy.settings, plan)
        _check_nobody_is_over(requests)
    for item in plan.scheduled:
        _check_share(item, toy.settings.block_size)


def check_tokens_stay(known: dict[Request, list[int]]) -> None:
    """Planning changes no request's tokens. known: what they were before."""
    for request, token_ids in known.items():
        expect_equal(
            request.token_ids, token_ids, f"the tokens of {request.request_id} after `schedule`",
            why="A preemption takes blocks, never tokens: those that were generated have been sent "
            "already. Their K and V are computed again, and the next token follows on the last.",
        )  # fmt: skip


def _check_budget(settings: "Settings", plan: StepPlan) -> None:
    expect(
        plan.num_tokens <= settings.token_budget,
        f"the step computes {plan.num_tokens} tokens, but its budget is {settings.token_budget}",
        why="The budget counts every token that a step computes: of chunks and of decodes alike.",
    )


def _check_nobody_is_over(requests: Sequence[Request]) -> None:
    over = [request.request_id for request in requests if request.is_finished]
    expect(
        not over,
        f"{over} are scheduled, but have ended",
        why="Whoever ends gives up seat and queue at once: its blocks may be somebody else's now.",
    )


def _check_share(item: ScheduledRequest, block_size: int) -> None:
    request, name = item.request, item.request.request_id
    end = item.start + item.num_tokens
    expect(item.num_tokens >= 1, f"{name} is scheduled with {item.num_tokens} tokens",
           why="Without a token to compute there is no query, and no logits.")  # fmt: skip
    if not request.is_finished:
        expect_equal(item.start, request.num_computed_tokens, f"the first position of {name}",
                     why="A request goes on behind the tokens whose K and V it has.")  # fmt: skip
        expect_equal(
            item.samples, end == request.num_tokens,
            f"whether {name} samples, with tokens {item.start}..{end - 1} of {request.num_tokens}",
            why="Only the last known token's logits say something new. A chunk that ends before it must "
            "not sample; the end of a sequence must, whether it is a prompt, a decode or what is "
            "computed again after a preemption.",
        )  # fmt: skip
    room = len(item.block_table) * block_size
    expect(end <= room, f"{name} computes up to position {end - 1} with blocks for {room} tokens",
           why="Blocks are allocated before a share enters the plan.")  # fmt: skip
    slots = [item.block_table[i // block_size] * block_size + i % block_size
             for i in range(item.start, end)]  # fmt: skip
    expect_equal(
        item.slots, slots, f"the slots of {name}, with the table {item.block_table}",
        why="There is a slot for each token that is computed now, and for no other.",
    )  # fmt: skip


class Gains:
    """What `update` must make of a step: each living request moves on, and some gain a token."""

    def __init__(self, plan: StepPlan, tokens: Sequence[int]) -> None:
        self._after: list[tuple[Request, list[int], int]] = []
        self._advanced: list[str] = []
        drawn = iter(tokens)
        for item in plan.scheduled:
            token = [next(drawn)] if item.samples else []
            request = item.request
            if request.is_finished:
                self._after.append((request, list(request.token_ids), request.num_computed_tokens))
                continue
            end = item.start + item.num_tokens
            self._after.append((request, [*request.token_ids, *token], end))
            self._advanced += [request.request_id] * item.samples

    def check(self, advanced: Sequence[Request]) -> None:
        names = [request.request_id for request in advanced]
        expect_equal(
            names, self._advanced, "the requests that update returns",
            why="Those that gained a token and are still alive, in the order of the plan.",
        )  # fmt: skip
        for request, token_ids, computed in self._after:
            expect_equal(
                request.token_ids, token_ids, f"the tokens of {request.request_id} after update",
                why="There is one new token for each request that samples, in the order of the plan, "
                "also for one that was ended meanwhile: that one is passed over, with its token.",
            )  # fmt: skip
            expect_equal(
                request.num_computed_tokens, computed,
                f"num_computed_tokens of {request.request_id} after update",
                why="K and V are there for what was computed, up to the end of the chunk; the token "
                "that was drawn has none yet.",
            )  # fmt: skip


def check_state(toy: "Toy") -> None:
    """The parts' own checks, and the invariants that span them."""
    _check_itself("scheduler", toy.scheduler)
    _check_itself("cache", toy.cache)
    running = [r for r in toy.requests if r.status is RequestStatus.RUNNING]
    expect_equal(toy.scheduler.num_running, len(running), "num_running",
                 why="It must be the number of requests whose status is RUNNING.")  # fmt: skip
    expect_equal(toy.scheduler.num_waiting, len(toy.alive) - len(running), "num_waiting",
                 why="Everybody alive runs or waits, in the queue and once.")  # fmt: skip
    _check_holders(toy)
    _check_blocks(toy)
    if not toy.alive:
        check_empty(toy)


def _check_itself(name: str, part: Any) -> None:
    try:
        part.check()
    except InvariantError as error:
        raise Mismatch(f"{name}.check() finds: {error}") from error


def _check_holders(toy: "Toy") -> None:
    """Who runs has blocks; who does not has none."""
    for request in toy.requests:
        table = toy.cache.block_table(request)
        runs = request.status is RequestStatus.RUNNING
        if table and not runs and not (toy.settings.static and request.is_finished):
            raise Mismatch(
                f"{request.request_id} is {request.status.value} but still holds the blocks {table}",
                why="Nobody else can have them: they have leaked.",
            )
        expect(
            request.num_cached_tokens < request.num_prompt_tokens,
            f"the whole prompt of {request.request_id} counts as cached",
            why="At least its last token is computed again, for its logits.",
        )


def _check_blocks(toy: "Toy") -> None:
    stats = toy.cache.stats()
    tables = {block for r in toy.requests for block in toy.cache.block_table(r)}
    expect_equal(stats["used_blocks"], len(tables), "blocks in use, and blocks in tables",
                 why="A block that is in no table and neither free nor cached has leaked.")  # fmt: skip
    total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
    expect_equal(total, toy.settings.num_blocks, "free, cached and used blocks together")
    freed = sorted(block for block in tables if toy.blocks.ref_count(block) == 0)
    expect(not freed, f"blocks {freed} stand in a table but are free")


def check_empty(toy: "Toy") -> None:
    """Nobody is left: no block is used beyond those that the tree keeps, on host or device."""
    why = "Whoever ends gives back all that it holds, on the device and on the host."
    expect_equal(toy.cache.stats()["used_blocks"], 0, "used blocks when nobody is left", why=why)
    expect_equal(toy.blocks.num_free_host, toy.settings.num_host_blocks,
                 "free host blocks when nobody is left", why=why)  # fmt: skip
