"""The toy engine in words: what a script quotes of requests, plans and the state between steps."""

from collections.abc import Sequence

from grader.kit.script import show
from grader.kit.toy_parts import ToyParts
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request, RequestStatus

MOST_SHOWN = 8
LONG, LONGEST_PERIOD = 48, 24
"""Tokens of a list that is told by its period, and those of the period."""


class NamedRequest(Request):
    """Shown by its name, where the error of a part shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self.request_id


def tell_add(siblings: Sequence[Request]) -> str:
    """[r1] = toy.add([0, 1, 2], max_tokens=3, priority=2)"""
    first = siblings[0]
    given = [tell_tokens(first.token_ids), f"max_tokens={first.max_tokens}"]
    if first.priority:
        given.append(f"priority={first.priority}")
    if len(siblings) > 1:
        given.append(f"n={len(siblings)}")
    return f"{list(siblings)} = toy.add({', '.join(given)})"


def tell_tokens(token_ids: Sequence[int]) -> str:
    """As Python: a long list that repeats its beginning as ([0, 1, 2, 3] * 75)[:299]."""
    count = len(token_ids)
    for period in range(1, LONGEST_PERIOD + 1) if count > LONG else ():
        times = -(-count // period)
        begin = list(token_ids[:period])
        if (begin * times)[:count] == list(token_ids):
            return (
                f"{begin} * {times}"
                if period * times == count
                else f"({begin} * {times})[:{count}]"
            )
    return str(list(token_ids))


def tell_plan(plan: StepPlan) -> str:
    """r0: tokens 0..8, samples | r1: token 4 | preempted r2"""
    told = [tell_share(item) for item in plan.scheduled]
    for word, requests in (("preempted", plan.preempted), ("failed", plan.failed)):
        if requests:
            told.append(f"{word} {', '.join(request.request_id for request in requests)}")
    for word, pairs in (
        ("to the host", plan.swap_out),
        ("from the host", plan.swap_in),
        ("copied", plan.copies),
    ):
        if pairs:
            told.append(f"{word} {', '.join(f'{here} to {there}' for here, there in pairs)}")
    return " | ".join(told) or "nothing"


def tell_share(item: ScheduledRequest) -> str:
    last = item.start + item.num_tokens - 1
    tokens = f"token {last}" if last == item.start else f"tokens {item.start}..{last}"
    drafts = f", drafts {' '.join(map(str, item.drafts))}" if item.drafts else ""
    return f"{item.request.request_id}: {tokens}{drafts}{', samples' * item.samples}"


def tell_drawn(plan: StepPlan, token_ids: Sequence[Sequence[int]]) -> str:
    """r0 draws 3, r1 draws 1 4"""
    sampling = [item.request for item in plan.scheduled if item.samples]
    told = [
        f"{request.request_id} draws {' '.join(map(str, drawn)) or 'nothing'}"
        for request, drawn in zip(sampling, token_ids, strict=True)
    ]
    return ", ".join(told) or "no token is drawn"


def tell_state(toy: ToyParts) -> str:
    """Which requests wait and run, on which blocks, and how many blocks are free."""
    try:
        return _tell_state(toy)
    except Exception as error:  # noqa: BLE001, a learner's scheduler may fail in any way
        return f"(cannot be shown: {type(error).__name__}: {error})"


def _tell_state(toy: ToyParts) -> str:
    alive = toy.alive
    running = [request for request in alive if request.status is RequestStatus.RUNNING]
    waiting = [_tell_waiting(r) for r in alive if r.status is not RequestStatus.RUNNING]
    lines = [f"waiting: {_some(waiting)}", f"running: {'none' if not running else ''}".rstrip()]
    lines += [f"  {_tell_running(toy, request)}" for request in running[:MOST_SHOWN]]
    if len(running) > MOST_SHOWN:
        lines.append(f"  and {len(running) - MOST_SHOWN} more")
    counted = (toy.scheduler.num_running, toy.scheduler.num_waiting)
    if counted != (len(running), len(waiting)):
        lines.append(f"num_running is {counted[0]}, num_waiting is {counted[1]}")
    stats = toy.cache.stats()
    cached = f", {stats['cached_blocks']} cached and evictable" * bool(stats["cached_blocks"])
    lines.append(f"blocks: {stats['free_blocks']} of {stats['total_blocks']} free{cached}")
    if toy.settings.num_host_blocks:
        lines.append(
            f"host blocks: {toy.blocks.num_free_host} of {toy.settings.num_host_blocks} free"
        )
    return "\n".join(lines)


def _tell_waiting(request: Request) -> str:
    count = request.num_tokens
    known = f"{count} token{'s' * (count != 1)}{_tell_flight(request)}"
    if request.status is RequestStatus.WAITING:
        return f"{request.request_id} ({known})"
    computed = request.num_computed_tokens
    return f"{request.request_id} ({request.status.value}, {computed} computed of {known})"


def _tell_running(toy: ToyParts, request: Request) -> str:
    computed, known = request.num_computed_tokens, request.num_tokens
    table = toy.cache.block_table(request)
    flight = _tell_flight(request)
    blocks = f"{len(table)} blocks {show(table)}" if len(table) > LONG else f"blocks {table}"
    return f"{request.request_id}: {computed} of {known} tokens computed{flight}, {blocks}"


def _tell_flight(request: Request) -> str:
    """What a step in flight computes and draws, if there is one."""
    told = f", {request.num_in_flight} in flight" if request.num_in_flight else ""
    unread = request.num_output_placeholders
    return told + (f", {unread} unread" if unread else "")


def _some(told: list[str]) -> str:
    more = [f"and {len(told) - MOST_SHOWN} more"] if len(told) > MOST_SHOWN else []
    return ", ".join(told[:MOST_SHOWN] + more) or "none"
