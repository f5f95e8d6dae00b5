"""From a plan to data: what the worker does not have yet of the requests that are scheduled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request, RequestStatus
from yaie.core.step import Extras, Ints, NewSeats, Pairs, StepInput, no_ints, no_pairs
from yaie.engine.asks import READ, RULED, of
from yaie.engine.asks.arrays import floats, ints, longs
from yaie.engine.asks.base import Ask, Vocabulary
from yaie.engine.step.isolation import Isolation


@dataclass(slots=True)
class Seat:
    """A request's seat, and what has been sent of its block table: the first `length` entries of
    `table`.

    life: the request's `num_preemptions` when it took the seat; with another one it begins anew. asks:
    what it may want of a step.
    """

    number: int
    life: int
    table: list[int]
    asks: list[Ask]
    length: int = 0


class StepEncoder:
    """Gives seats to requests, and remembers what the worker knows of each."""

    def __init__(
        self,
        num_seats: int,
        vocabulary: Vocabulary,
        isolation: Isolation | None = None,
    ) -> None:
        """num_seats: at least twice as many as run at once. Requests that have ended, or wait for
        their unread token, then give way only to many others at a time. isolation: where requests that
        cannot be encoded fail."""
        self._vocabulary = vocabulary
        self._isolation = isolation or Isolation()
        self._seats: dict[Request, Seat] = {}
        self._free = list(range(num_seats))[::-1]
        self._num_steps = 0

    def encode(self, plan: StepPlan) -> StepInput | None:
        """The plan as data, which must be sent, in order; None if there is nothing to send.

        A request whose own data cannot be encoded fails, and is taken off the plan.
        """
        if self._isolation.failed:
            self._isolation.take_off(plan.scheduled)
        own = partial(self._without_seats, plan.asks)
        try:
            step = own(plan.scheduled)
        except BaseException as error:  # noqa: BLE001, most are some request's alone
            step = self._isolation.without_failing(plan.scheduled, own, error)
        if not plan.scheduled and plan.is_empty:  # nor does it move blocks
            return None
        scheduled, seats, entered = plan.scheduled, [], []
        columns: list[tuple[int, int, list[int]]] = []
        for item in scheduled:
            request, table = item.request, item.block_table
            seat = self._seats.get(request)
            if seat is None or seat.life != request.num_preemptions:
                seat = self._enter(item, scheduled)  # in the order of `_without_seats`
                entered.append(seat.number)
            # The same list object has only grown; another one may differ anywhere.
            if seat.table is not table:
                seat.table, seat.length = table, 0
            if seat.length < len(table):
                columns.append((seat.number, seat.length, table[seat.length :]))
                seat.length = len(table)
            seats.append(seat.number)
        step.seats = ints(seats)
        if step.new is not None:
            step.new.seats = ints(entered)
        if plan.swap_out or plan.swap_in or plan.copies:
            step.swap_out, step.swap_in = _pairs(plan.swap_out), _pairs(plan.swap_in)
            step.copies = _pairs(plan.copies)
        if columns:
            _set_tables(step, columns)
        self._num_steps += 1
        return step

    def _without_seats(
        self, asks: Sequence[Ask], scheduled: Sequence[ScheduledRequest]
    ) -> StepInput:
        """What requests say of themselves. Raises for what no array holds, and changes nothing."""
        entering: list[Request] = []
        asking: dict[Ask, list[tuple[int, ScheduledRequest]]] = {}
        for row, item in enumerate(scheduled):
            seat = self._seats.get(item.request)
            if seat is not None and seat.life == item.request.num_preemptions:
                own = seat.asks
            else:
                entering.append(item.request)
                own = of(item.request, READ)
            for ask in (*own, *asks):
                if ask.wants(item):
                    asking.setdefault(ask, []).append((row, item))
        new = new_seats(entering, no_ints(), self._vocabulary) if entering else None
        step = StepInput(
            step=self._num_steps,
            seats=no_ints(),
            starts=ints([item.start for item in scheduled]),
            num_tokens=ints([item.num_tokens for item in scheduled]),
            samples=np.array([item.samples for item in scheduled], dtype=np.bool_),
            masked=any(item.samples and item.request.matcher is not None for item in scheduled),
            new=new,
            extras={ask.name: ask.ask(own) for ask, own in asking.items()},
        )
        if any(item.drafts for item in scheduled):
            step.drafts = self._drafts(scheduled)
            step.num_drafts = ints([len(item.drafts) for item in scheduled])
        return step

    def _drafts(self, scheduled: Sequence[ScheduledRequest]) -> Ints:
        """Raises ValueError for one that is no token of this model: the model would look it up."""
        drafts = ints(list(chain.from_iterable(item.drafts for item in scheduled)))
        if drafts.min() < 0 or drafts.max() >= self._vocabulary.size:
            raise ValueError(f"a draft is no token: ids go from 0 to {self._vocabulary.size - 1}")
        return drafts

    def seats_of(self, requests: Sequence[Request]) -> Ints:
        """The seats [n] of requests of the last plan."""
        return ints([self._seats[request].number for request in requests])

    def _enter(self, item: ScheduledRequest, scheduled: Sequence[ScheduledRequest]) -> Seat:
        request = item.request
        old = self._seats.get(request)
        if old is None and not self._free:
            self._sweep({other.request for other in scheduled})
        number = self._free.pop() if old is None else old.number
        seat = self._seats[request] = Seat(
            number, request.num_preemptions, item.block_table, of(request, READ)
        )
        return seat

    def _sweep(self, scheduled: set[Request]) -> None:
        """Free the seats of requests that run no more. One that was preempted keeps its seat until its
        unread token is known."""
        for request in list(self._seats):
            waits = request.num_in_flight and not request.is_finished
            if request.status is RequestStatus.RUNNING or waits or request in scheduled:
                continue
            self._free.append(self._seats.pop(request).number)


def new_seats(requests: Sequence[Request], seats: Ints, vocabulary: Vocabulary) -> NewSeats:
    """These requests as they are now, all of whose tokens are known, in these seats [m]."""
    params = [request.params for request in requests]
    return NewSeats(
        seats=seats,
        tokens=ints(list(chain.from_iterable(request.token_ids for request in requests))),
        num_tokens=ints([len(request.token_ids) for request in requests]),
        num_prompt_tokens=ints([request.num_prompt_tokens for request in requests]),
        temperature=floats([one.temperature for one in params]),
        # More than the vocabulary is all of it, and may be more than 64 bits hold.
        top_k=longs([min(max(0, one.top_k), vocabulary.size) for one in params]),
        top_p=floats([one.top_p for one in params]),
        min_p=floats([one.min_p for one in params]),
        random_seeds=longs([request.seed for request in requests]),
        steps=longs([request.num_output_tokens for request in requests]),
        extras=_extras(requests, vocabulary),
    )


def _extras(requests: Sequence[Request], vocabulary: Vocabulary) -> Extras:
    asking: dict[Ask, list[tuple[int, Request]]] = {}
    for position, request in enumerate(requests):
        for ask in of(request, RULED):
            asking.setdefault(ask, []).append((position, request))
    found = ((ask.name, ask.enter(own, vocabulary)) for ask, own in asking.items())
    return {name: arrays for name, arrays in found if arrays is not None}


def _set_tables(step: StepInput, columns: list[tuple[int, int, list[int]]]) -> None:
    counts = [len(blocks) for _, _, blocks in columns]
    step.table_seats = np.repeat(ints([seat for seat, _, _ in columns]), counts)
    step.table_columns = ints(
        list(chain.from_iterable(range(at, at + len(new)) for _, at, new in columns))
    )
    step.table_blocks = ints(list(chain.from_iterable(blocks for _, _, blocks in columns)))


def _pairs(moves: list[tuple[int, int]]) -> Pairs:
    return np.array(moves, dtype=np.int64) if moves else no_pairs()
