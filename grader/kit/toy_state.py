"""What must hold in the toy engine after every call: queues, counts, tables and blocks agree."""

from collections import Counter
from typing import Any

from grader.kit.expect import Mismatch, claiming, expect, expect_equal
from grader.kit.toy_parts import ToyParts
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

IN_FLIGHT = (
    "advance adds what a step computes and draws, update takes the same off again, and nothing else "
    "changes it."
)
NOT_CALLED_BACK = (
    f"{IN_FLIGHT} A preemption does not: it takes blocks but does not call back the step in flight."
)
DRAFTS = (
    "A step that samples behind {} drafts promises {} unread tokens: one, and one more for each draft. "
    "advance counts all of them, and update takes as many off again."
)


@claiming("After every call requests, queues and blocks agree.")
def check_state(toy: ToyParts) -> None:
    """The parts' own checks, and the invariants that span them."""
    alive = toy.alive
    _check_in_flight(toy, alive)
    _check_itself("scheduler", toy.scheduler, toy)
    _check_itself("cache", toy.cache, toy)
    running = [r for r in toy.requests if r.status is RequestStatus.RUNNING]
    expect_equal(toy.scheduler.num_running, len(running), "num_running",
                 why="It must be the number of requests whose status is RUNNING.")  # fmt: skip
    expect_equal(toy.scheduler.num_waiting, len(alive) - len(running), "num_waiting",
                 why="A request that is alive runs or waits, in the queue and once.")  # fmt: skip
    tables = [(request, toy.cache.block_table(request)) for request in toy.requests]
    _check_holders(toy, tables)
    _check_blocks(toy, tables)
    if not alive:
        check_empty(toy)


def _check_in_flight(toy: ToyParts, alive: list[Request]) -> None:
    """What requests say is in flight is what the steps without a result compute and draw."""
    tokens: Counter[Request] = Counter()
    unread: Counter[Request] = Counter()
    for flight in toy.in_flight:
        for item in flight.plan.scheduled:
            tokens[item.request] += item.num_tokens
            unread[item.request] += item.samples + len(item.drafts)
    for request in alive:
        told = request.num_in_flight, request.num_output_placeholders
        if told == (tokens[request], unread[request]):
            continue
        name = request.request_id
        gone = request.status in (RequestStatus.PREEMPTED, RequestStatus.SWAPPED)
        expect_equal(request.num_in_flight, tokens[request], f"num_in_flight of {name}",
                     why=NOT_CALLED_BACK if gone else IN_FLIGHT)  # fmt: skip
        expect_equal(
            request.num_output_placeholders,
            unread[request],
            f"num_output_placeholders of {name}",
            why=_why_unread(toy, request, unread[request]),
        )


def _why_unread(toy: ToyParts, request: Request, right: int) -> str:
    """What explains a wrong number of unread tokens: what is missing may be the drafts of one share."""
    if request.status in (RequestStatus.PREEMPTED, RequestStatus.SWAPPED):
        return NOT_CALLED_BACK
    items = [item for flight in toy.in_flight for item in flight.plan.scheduled]
    drafts = [len(item.drafts) for item in items if item.request is request and item.drafts]
    missing = right - request.num_output_placeholders
    if len(drafts) == 1 and missing == drafts[0]:
        return DRAFTS.format(drafts[0], 1 + drafts[0])
    return IN_FLIGHT


def _check_itself(name: str, part: Any, toy: ToyParts) -> None:
    try:
        part.check()
    except InvariantError as error:
        ended = "but its status is finished" in str(error)
        why = _why_listed(part, toy) if ended else ""
        raise Mismatch(f"{name}.check() finds: {error}", why=why) from error


def _why_listed(scheduler: Any, toy: ToyParts) -> str:
    """Why a request that has ended is still in `_running`, if another one has left in its place."""
    listed = list(getattr(scheduler, "_running", ()))
    ended = [r for r in toy.requests if r.is_finished and r in listed]
    lost = [r for r in toy.requests if r.status is RequestStatus.RUNNING and r not in listed]
    if len(ended) != 1 or len(lost) != 1:
        return "`finish` takes a request out of `_running`, and that one only."
    (gone,), (other,) = ended, lost
    name, place = other.request_id, f"in place of {gone.request_id}"
    told = f"{name} is no longer in `_running`: it was taken out {place}."
    if gone.priority == other.priority and toy.settings.policy == "priority":
        told += f" Both have priority {gone.priority}: their arrival tells them apart."
    return told


def _check_holders(toy: ToyParts, tables: list[tuple[Request, list[int]]]) -> None:
    """A request that runs has blocks; one that does not has none."""
    for request, table in tables:
        runs = request.status is RequestStatus.RUNNING
        if table and not runs and not (toy.settings.static and request.is_finished):
            leaked = "No other request can have them: they have leaked."
            if request.status is RequestStatus.WAITING and not request.num_preemptions:
                leaked = (
                    "It has not run yet. Where it cannot start in this step, `free` gives back what "
                    "`admit` and `allocate` gave it."
                )
            swapped = (
                "`swap_out` takes the whole table, or says no: then blocks are given up by `free`."
            )
            raise Mismatch(
                f"{request.request_id} is {request.status.value} but still holds the blocks {table}",
                why=swapped if request.status is RequestStatus.SWAPPED else leaked,
            )
        if request.num_cached_tokens >= request.num_prompt_tokens:
            raise Mismatch(
                f"the whole prompt of {request.request_id} counts as cached",
                why="At least its last token is computed again, for its logits.",
            )


def _check_blocks(toy: ToyParts, tables: list[tuple[Request, list[int]]]) -> None:
    stats = toy.cache.stats()
    named = {block for _, table in tables for block in table}
    expect_equal(stats["used_blocks"], len(named), "blocks in use, and blocks in tables",
                 why="A block that is in no table and neither free nor cached has leaked.")  # fmt: skip
    total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
    expect_equal(total, toy.settings.num_blocks, "free, cached and used blocks together")
    freed = sorted(block for block in named if toy.blocks.ref_count(block) == 0)
    expect(not freed, f"blocks {freed} stand in a table but are free")


@claiming("Once all requests have ended, every block is free or cached.")
def check_empty(toy: ToyParts) -> None:
    """All have ended: no block is used beyond those that the tree keeps, on host or device."""
    why = "A request that ends gives back all that it holds, on the device and on the host."
    if toy.settings.static:
        why = (
            "StaticScheduler keeps the row of an ended request while others run. Its `_release` looks "
            "into `_running` for that, so `finish` takes the request out of `_running` first."
        )
    for request in toy.requests:
        table = toy.cache.block_table(request)
        name = request.request_id
        expect(not table, f"all have ended, but {name} still holds the blocks {table}", why=why)
    expect_equal(toy.cache.stats()["used_blocks"], 0, "used blocks of an engine without requests",
                 why=why)  # fmt: skip
    expect_equal(toy.blocks.num_free_host, toy.settings.num_host_blocks,
                 "free host blocks of an engine without requests", why=why)  # fmt: skip
