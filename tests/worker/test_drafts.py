"""With drafts a worker draws what it draws without, however right or wrong they are."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.rig import (
    NUM_SEATS,
    VOCAB,
    Rig,
    logprobs_of,
    mixed_requests,
    naive_tokens,
    request_of,
)
from tests.worker.test_padded import padding_worker
from yaie.core.request import Request
from yaie.core.step import StepInput, StepMasks
from yaie.worker.drafts import DraftRows

COUNT = 24
Guess = Callable[[list[int], random.Random], list[int]]
"""Drafts out of the tokens that really follow."""

GUESSES: dict[str, Guess] = {
    "right": lambda true, rng: true[:3],
    "wrong": lambda true, rng: [(token + 1) % VOCAB for token in true[:3]],
    "right, then wrong": lambda true, rng: [*true[:2], (true[2] + 1) % VOCAB, *true[3:4]],
    "wrong, then right": lambda true, rng: [(true[0] + 1) % VOCAB, *true[1:3]],
    "as it comes": lambda true, rng: [
        token if rng.random() < 0.7 else rng.randrange(VOCAB) for token in true[: rng.randrange(5)]
    ],
}


@cache
def truth(seat: int) -> list[int]:
    """What the mixed request of a seat draws one by one."""
    return naive_tokens(mixed_requests()[seat], COUNT + 8)


def guessed(rig: Rig, seats: list[int], guess: Guess, rng: random.Random) -> dict[int, list[int]]:
    return {seat: guess(truth(seat)[len(rig.output(seat)) :], rng) for seat in seats}


def assert_all_drew_the_truth(rig: Rig) -> None:
    for seat in rig.requests:
        drawn = rig.output(seat)
        assert drawn == truth(seat)[: len(drawn)]


def padded() -> Rig:
    """Steps on memory that stays where it is, as they are replayed on a GPU."""
    zones = [0, 2, NUM_SEATS], [2, 5, 9, 30, 200]
    return Rig(padding_worker([1, NUM_SEATS], zones=zones)[0])


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
@pytest.mark.parametrize("make", [Rig, padded], ids=["as they are", "padded"])
def test_drafts_change_no_token(guess: Guess, make: Callable[[], Rig]) -> None:
    rig, rng = make(), random.Random(0)
    rig.step(enter=mixed_requests())
    for _ in range(3):
        rig.step(drafts=guessed(rig, list(rig.requests), guess, rng))
    assert_all_drew_the_truth(rig)
    for _ in range(3):  # what the worker keeps of each seat is right for plain steps, too
        rig.step()
    rig.step(drafts=guessed(rig, list(rig.requests), guess, rng))
    assert_all_drew_the_truth(rig)
    assert min(len(rig.output(seat)) for seat in rig.requests) >= 8


def test_right_drafts_are_all_accepted_and_one_more_token_is_drawn() -> None:
    rig = Rig()
    rig.step(enter=mixed_requests())
    step = rig.plan(drafts=guessed(rig, list(rig.requests), GUESSES["right"], random.Random(0)))
    result = rig.worker.execute(step).result()
    assert [len(own) for own in result.token_ids] == [4] * NUM_SEATS


def test_nothing_is_accepted_behind_a_wrong_draft() -> None:
    rig = Rig()
    rig.step(enter=mixed_requests())
    drafts = guessed(rig, list(rig.requests), GUESSES["wrong, then right"], random.Random(0))
    assert all(len(own) == 1 for own in rig.step(drafts=drafts).token_ids)


@pytest.mark.parametrize("seed", range(3))
def test_seats_with_drafts_and_without_and_chunks_share_a_step(seed: int) -> None:
    rig, rng = Rig(), random.Random(seed)
    requests = mixed_requests()
    rig.step(enter={seat: requests.pop(seat) for seat in (1, 3)})
    while requests or min(len(rig.output(seat)) for seat in rig.requests) < 6:
        enter: dict[int, Request] = {}
        if requests and rng.random() < 0.5:
            seat = rng.choice(list(requests))
            enter[seat] = requests.pop(seat)
        drawing = [seat for seat in rig.requests if rig.output(seat)]
        few = rng.sample(drawing, rng.randrange(len(drawing) + 1))
        drafts = guessed(rig, few, GUESSES["as it comes"], rng)
        rig.step(enter=enter, most=rng.choice([4, 9]), drafts=drafts)
        # A request that draws too far has no truth to guess from.
        for seat in [seat for seat in rig.requests if len(rig.output(seat)) > COUNT]:
            del rig.requests[seat]
    assert_all_drew_the_truth(rig)


def test_drafts_for_the_first_token_follow_the_prompt() -> None:
    rig = Rig()
    request = mixed_requests()[2]
    result = rig.step(enter={2: request}, drafts={2: truth(2)[:3]})
    assert result.token_ids == [truth(2)[:4]]
    rig.step()
    assert_all_drew_the_truth(rig)


def test_seat_that_was_given_away_before_the_result_was_read_is_the_other_request_s() -> None:
    """Its request ended while the step was in flight."""
    rig = Rig()
    rig.step(enter={0: mixed_requests()[2], 1: mixed_requests()[1]})
    in_flight = rig.plan(drafts={0: truth(2)[1:3], 1: truth(1)[1:3]})
    handle = rig.worker.execute(in_flight)
    other = request_of([3, 3, 3], 9, temperature=1.0, frequency_penalty=2.0)
    behind = rig.worker.execute(step := rig.plan(0, enter={0: other}))
    assert handle.result().token_ids == [truth(2)[1:4], truth(1)[1:4]]
    rig._take(step, behind.result())
    rig.requests[1].token_ids += truth(1)[1:4]
    rig.computed[1] += 3
    for _ in range(4):
        rig.step()
    assert rig.output(0) == naive_tokens(other, 5)
    assert rig.output(1) == truth(1)[:8]


def test_each_accepted_token_has_its_logprob() -> None:
    def one(drafts: list[int], count: int) -> list[float]:
        rig = Rig()
        told: list[float] = []
        request = request_of([4, 9, 1], logprobs=1)
        # Seats around it, with drafts and without, that ask for none.
        around = {0: request_of([1, 2], 1), 2: request_of([3, 4], 2)}
        rig.step(enter={0: around[0], 1: request, 2: around[2]})
        for _ in range(count):
            step = rig.plan(drafts={1: drafts, 2: [0, 0]} if drafts else None)
            result = rig.worker.execute(step).result()
            row = step.seats.tolist().index(1)
            ((place, entries),) = logprobs_of(result).items()
            assert place == row
            assert [entry.token_id for entry in entries] == result.token_ids[row]
            told += [entry.logprob for entry in entries]
            rig._take(step, result)
        return told

    true = naive_tokens(request_of([4, 9, 1]), 4)
    assert one([*true[1:3], (true[3] + 1) % VOCAB], 1) == pytest.approx(one([], 3), abs=1e-6)


@pytest.mark.parametrize(
    ("drafts", "gained"), [([17, 18], [17, 18, 19]), ([17, 9], [17, 18]), ([9, 18], [17])]
)
def test_constrained_seat_has_a_mask_for_each_of_its_draws(
    drafts: list[int], gained: list[int]
) -> None:
    rig = Rig()
    rig.step(enter={seat: mixed_requests()[seat] for seat in (1, 3)})
    request = request_of([5, 6])
    request.matcher = object()
    allowed = np.zeros((3, VOCAB), np.uint8)
    allowed[range(3), [17, 18, 19]] = 1
    masks = np.packbits(allowed, axis=1, bitorder="little")
    result = rig.step(
        enter={2: request},
        drafts={**guessed(rig, [1, 3], GUESSES["right"], random.Random(0)), 2: drafts},
        masks=lambda step: StepMasks(step.step, np.array([2, 2, 2], np.int32), masks),
    )
    assert result.fault is None
    assert rig.output(2) == gained
    del rig.requests[2]
    assert_all_drew_the_truth(rig)


def test_constrained_seat_may_stand_beside_drafts() -> None:
    rig = Rig()
    rig.step(enter={1: mixed_requests()[1], 3: mixed_requests()[3]})
    request = request_of([5, 6])
    request.matcher = object()
    allowed = np.zeros((1, VOCAB), np.uint8)
    allowed[0, 17] = 1
    masks = np.packbits(allowed, axis=1, bitorder="little")
    result = rig.step(
        enter={2: request},
        drafts=guessed(rig, [1, 3], GUESSES["right"], random.Random(0)),
        masks=lambda step: StepMasks(step.step, np.array([2], np.int32), masks),
    )
    assert result.fault is None
    assert rig.output(2) == [17]
    assert [len(rig.output(seat)) for seat in (1, 3)] == [5, 5]
    del rig.requests[2]
    assert_all_drew_the_truth(rig)


def test_counting_drafts_is_one_call_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A grammar may force 32 tokens at once: rows times drafts, each an operation, were thousands."""
    calls: list[str] = []
    for name in ("index_put_", "__setitem__", "__getitem__"):
        own = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, *args: Any, own: Any = own, **options: Any) -> Any:
            calls.append("")
            return own(self, *args, **options)

        monkeypatch.setattr(torch.Tensor, name, counted)
    costs, rng = [], random.Random(0)
    for count in (1, 32):
        counts = np.array([count, 0, count], np.int32)
        drafts = np.array([rng.randrange(VOCAB) for _ in range(2 * count)], np.int32)
        samples = np.ones(3, np.bool_)
        step = StepInput(
            0, np.arange(3, dtype=np.int32), counts, counts + 1, samples, drafts=drafts,
            num_drafts=counts,
        )  # fmt: skip
        ends, lives = np.cumsum(counts + 1, dtype=np.int32), np.zeros(99, np.int64)
        rows = DraftRows(step, ends, lives, torch.device("cpu"))
        table = torch.zeros(2 * count + 3, VOCAB)
        calls.clear()
        rows.count_into(table)
        costs.append(len(calls))
        wanted = np.zeros(table.shape)
        for first, own_drafts in ((0, drafts[:count]), (count + 2, drafts[count:])):
            for offset in range(count + 1):
                np.add.at(wanted[first + offset], own_drafts[:offset], 1)
        assert (table.numpy() == wanted).all()
    assert costs[0] == costs[1] <= 4
