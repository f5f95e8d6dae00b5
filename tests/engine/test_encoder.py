"""A plan as data: who sits where, and of each request just what the worker does not have yet."""

import random
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus
from yaie.core.step import StepInput
from yaie.engine.asks.base import Vocabulary
from yaie.engine.step.encoder import StepEncoder

VOCAB = 50
NUM_SEATS, MOST_RUNNING = 8, 4
MAX_BLOCKS = 12
Life = tuple[Request, int]


def make_request(name: str, prompt: list[int] | None = None, **params: Any) -> Request:
    return Request(name, list(prompt or [1, 2, 3]), SamplingParams(**params))


def share(request: Request, table: list[int], **changes: Any) -> ScheduledRequest:
    request.status = RequestStatus.RUNNING
    item = ScheduledRequest(request, request.num_computed_tokens, 1, table, True)
    return replace(item, **changes)


def encoder() -> StepEncoder:
    return StepEncoder(NUM_SEATS, Vocabulary(VOCAB))


def table_entries(step: StepInput) -> list[tuple[int, int, int]]:
    parts = (step.table_seats, step.table_columns, step.table_blocks)
    return list(zip(*(part.tolist() for part in parts), strict=True))


# --- any history ---


class Replay:
    """What a worker knows after the steps it was sent: tables, and who was told to sit where."""

    def __init__(self) -> None:
        self.tables = np.full((NUM_SEATS, MAX_BLOCKS), -1)
        self.tokens: dict[int, list[int]] = {}

    def take(self, step: StepInput) -> None:
        if step.new is not None:
            ends = np.cumsum(step.new.num_tokens)[:-1]
            for seat, own in zip(step.new.seats, np.split(step.new.tokens, ends), strict=True):
                self.tokens[int(seat)] = own.tolist()
        for seat, column, block in table_entries(step):
            self.tables[seat, column] = block


@dataclass
class Sent:
    """What the worker must have of a life by now: its table when it was last sent."""

    table: list[int]
    length: int


class Control:
    """A scheduler's part of the world, driven by chance, with one step always in flight."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.tables: dict[Request, list[int]] = {}
        self.in_flight: deque[StepPlan] = deque()
        self.num_made = 0

    def events(self) -> None:
        """Requests come, end, are preempted, come back; tables are replaced."""
        rng = self.rng
        while len(self.waiting) < 3:
            prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 5))]
            self.waiting.append(make_request(f"r{self.num_made}", prompt))
            self.num_made += 1
        for request in list(self.running):
            event = rng.random()
            if event < 0.08:
                self.running.remove(request)
                request.status = RequestStatus.FINISHED
            elif event < 0.16:
                self.running.remove(request)
                swapped = rng.random() < 0.5
                request.status = RequestStatus.SWAPPED if swapped else RequestStatus.PREEMPTED
                request.num_preemptions += 1
                self.waiting.insert(0, request)
            elif event < 0.26:  # duplicates were given up for blocks of the tree
                self.tables[request] = [rng.randrange(99) for _ in self.tables[request]]
        for request in list(self.waiting):
            if (
                len(self.running) < MOST_RUNNING
                and not request.num_in_flight
                and rng.random() < 0.5
            ):
                self.waiting.remove(request)
                self.running.append(request)
                request.status = RequestStatus.RUNNING
                self.tables[request] = [rng.randrange(99) for _ in range(rng.randint(1, 4))]

    def plan(self) -> StepPlan:
        chosen = [request for request in self.running if self.rng.random() < 0.8]
        for request in chosen:
            table = self.tables[request]
            while len(table) < MAX_BLOCKS and self.rng.random() < 0.4:
                table.append(self.rng.randrange(99))
        return StepPlan([share(request, self.tables[request]) for request in chosen])

    def advance(self, plan: StepPlan) -> None:
        """Send a plan, and read the one before it."""
        for item in plan.scheduled:
            item.request.num_in_flight += 1
            item.request.num_output_placeholders += 1
        self.in_flight.append(plan)
        if len(self.in_flight) > 1:
            for item in self.in_flight.popleft().scheduled:
                if not item.request.is_finished:
                    item.request.num_in_flight -= 1
                    item.request.num_output_placeholders -= 1
                    item.request.token_ids.append(self.rng.randrange(VOCAB))


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_has_every_table_and_all_tokens_whatever_happened(seed: int) -> None:
    control, steps, replay = Control(seed), encoder(), Replay()
    sent: dict[Life, Sent] = {}
    owner: dict[int, Life] = {}
    for _ in range(250):
        control.events()
        plan = control.plan()
        step = steps.encode(plan)
        assert (step is None) == plan.is_empty
        if step is None:
            continue
        replay.take(step)
        requests = [item.request for item in plan.scheduled]
        seats = step.seats.tolist()
        lives = [(request, request.num_preemptions) for request in requests]
        assert len(set(seats)) == len(seats)

        begin = [life for life in lives if life not in sent or life not in owner.values()]
        entered = [] if step.new is None else step.new.seats.tolist()
        assert entered == [seats[lives.index(life)] for life in begin]
        owner |= dict(zip(entered, begin, strict=True))
        assert [owner[seat] for seat in seats] == lives  # nobody has taken a seat that is in use

        wanted = []
        for seat, life, item in zip(seats, lives, plan.scheduled, strict=True):
            table = item.block_table
            known = sent.get(life)
            # What was sent of this very list need not be sent again.
            same = known is not None and known.table is table and life not in begin
            first = known.length if same and known is not None else 0
            wanted += [(seat, column, table[column]) for column in range(first, len(table))]
            sent[life] = Sent(table, len(table))
            assert replay.tables[seat, : len(table)].tolist() == table
            own = replay.tokens[seat]
            assert own == item.request.token_ids[: len(own)]
            if life in begin:
                assert own == item.request.token_ids
        assert table_entries(step) == wanted
        control.advance(plan)
    assert control.num_made > 3 * NUM_SEATS  # many more than there are seats


# --- what is sent when ---


def test_request_that_only_decodes_sends_nothing_twice() -> None:
    steps, request, table = encoder(), make_request("a"), [7, 8]
    steps.encode(StepPlan([share(request, table)]))
    for _ in range(3):
        step = steps.encode(StepPlan([share(request, table)]))
        assert step.new is None
        assert table_entries(step) == []
    table.append(9)
    assert table_entries(steps.encode(StepPlan([share(request, table)]))) == [(0, 2, 9)]


def test_table_that_was_replaced_is_sent_whole() -> None:
    steps, request = encoder(), make_request("a")
    steps.encode(StepPlan([share(request, [7, 8])]))
    step = steps.encode(StepPlan([share(request, [7, 3])]))
    assert table_entries(step) == [(0, 0, 7), (0, 1, 3)]
    assert step.new is None


def test_readmitted_request_sends_its_tokens_and_its_place_in_the_output_again() -> None:
    steps = encoder()
    request = make_request("a", [5, 6], presence_penalty=1.0)
    first = steps.encode(StepPlan([share(request, [7])]))
    request.token_ids += [8, 9]
    request.num_preemptions += 1
    step = steps.encode(StepPlan([share(request, [4])]))
    assert step.seats.tolist() == first.seats.tolist()
    assert step.new is not None
    assert step.new.tokens.tolist() == [5, 6, 8, 9]
    assert step.new.num_tokens.tolist() == [4]
    assert step.new.num_prompt_tokens.tolist() == [2]
    assert step.new.steps.tolist() == [2]
    assert table_entries(step) == [(0, 0, 4)]


@pytest.mark.parametrize(
    "change", [{"presence_penalty": 1}, {"frequency_penalty": -1}, {"repetition_penalty": 1.1}, {}]
)
def test_each_penalty_counts_as_one(change: dict[str, float]) -> None:
    step = encoder().encode(StepPlan([share(make_request("a", **change), [7])]))
    assert step.new is not None
    assert ("penalties" in step.new.extras) == bool(change)


def test_preempted_request_keeps_its_seat_until_its_token_is_known() -> None:
    steps = encoder()
    request = make_request("a")
    (seat,) = steps.encode(StepPlan([share(request, [7])])).seats.tolist()
    request.status, request.num_in_flight = RequestStatus.PREEMPTED, 1
    request.num_preemptions = 1
    others = [make_request(f"b{i}") for i in range(3 * NUM_SEATS)]
    taken = set()
    for other in others:  # each ends at once, and its seat may go to the next
        taken.add(steps.encode(StepPlan([share(other, [1])])).seats.tolist()[0])
        other.status = RequestStatus.FINISHED
    assert seat not in taken
    assert steps.seats_of([request]).tolist() == [seat]
    request.num_in_flight = 0
    for other in others:
        other.status = RequestStatus.RUNNING
        taken.add(steps.encode(StepPlan([share(other, [1])])).seats.tolist()[0])
        other.status = RequestStatus.FINISHED
    assert seat in taken


def test_ended_requests_that_are_still_scheduled_keep_their_seats() -> None:
    """A static batch computes rows that have ended until all have."""
    steps = encoder()
    batch = [make_request(f"a{i}") for i in range(NUM_SEATS // 2)]
    items = [share(request, [1]) for request in batch]
    seats = steps.encode(StepPlan(items)).seats.tolist()
    for request in batch[1:]:
        request.status = RequestStatus.FINISHED
    more = [share(make_request(f"b{i}"), [1]) for i in range(NUM_SEATS // 2)]
    assert set(steps.encode(StepPlan(more)).seats.tolist()).isdisjoint(seats)
    for item in more:
        item.request.status = RequestStatus.FINISHED
    step = steps.encode(StepPlan([share(make_request("c"), [1]), *items]))
    assert step.seats.tolist()[1:] == seats
    assert step.new is not None
    assert step.new.seats.tolist() == step.seats.tolist()[:1]
