"""What would end an output is not drawn before `min_tokens`; tokens asked for by name are told."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from solutions.sampler import Sampler
from tests.worker.rig import (
    MIXED,
    NUM_SEATS,
    VOCAB,
    Rig,
    TinyAdapter,
    dense_logits,
    logprobs_of,
    mixed_requests,
    naive_batch,
    request_of,
)
from yaie.core.batch import SamplingBatch
from yaie.core.logprobs import TokenLogprob
from yaie.core.request import Request
from yaie.core.step import StepInput, StepMasks

COUNT = 12
MIN_TOKENS = (0, 3, 5, 8, 20)
"""Of each seat."""


def naive(request: Request, count: int) -> list[int]:
    """The output drawn one by one from the whole sequence, its stop tokens left out at first."""
    adapter, params = TinyAdapter(), request.params
    tokens = request.token_ids[: request.num_prompt_tokens]
    for position in range(count):
        logits = dense_logits(adapter, tokens)[-1:]
        for token, bias in params.logit_bias:
            logits[0, token] += bias
        if position < params.min_tokens:
            logits[0, list(params.stop_token_ids)] = float("-inf")
        tokens.append(int(Sampler().sample(logits, naive_batch(request, tokens))))
    return tokens[request.num_prompt_tokens :]


def requests() -> dict[int, Request]:
    """The mixed batch; what each seat would draw first is what may not be drawn."""
    made = {}
    for seat, plain in mixed_requests().items():
        stops = naive(plain, 6)
        params: Any = MIXED[seat]
        more: Any = {"stop_token_ids": stops, "min_tokens": MIN_TOKENS[seat]}
        made[seat] = request_of(plain.token_ids, seat, **params, **more)
    return made


def test_held_tokens_are_those_of_a_naive_loop_and_no_others() -> None:
    rig = Rig()
    rig.step(enter=requests())
    while len(rig.output(0)) < COUNT:
        rig.step()
    for seat, request in rig.requests.items():
        assert rig.output(seat) == naive(request, COUNT)
        early = rig.output(seat)[: MIN_TOKENS[seat]]
        assert not set(early) & set(request.params.stop_token_ids)
    assert rig.output(1) != naive(mixed_requests()[1], COUNT)


def test_seats_that_come_and_go_keep_their_own_count() -> None:
    rig, waiting = Rig(), requests()
    for seat in (3, 0, 4, 1, 2):  # each in a step of its own
        rig.step(enter={seat: waiting.pop(seat)})
    for _ in range(COUNT):
        rig.step()
    for seat, request in rig.requests.items():
        assert rig.output(seat) == naive(request, len(rig.output(seat)))
    again = requests()[3]  # in another's seat, with other tokens to hold
    rig.step(enter={2: again})
    for _ in range(COUNT):
        rig.step()
    assert rig.output(2) == naive(again, COUNT + 1)


def test_a_request_that_begins_anew_counts_what_it_has() -> None:
    request = requests()[3]
    expected = naive(request, COUNT)
    request.token_ids += expected[:4]  # and lost its blocks
    rig = Rig()
    rig.step(enter={1: request})
    while len(rig.output(1)) < COUNT:
        rig.step()
    assert rig.output(1) == expected


@pytest.mark.parametrize("seed", range(3))
def test_drafts_change_nothing(seed: int) -> None:
    rig, rng = Rig(), random.Random(seed)
    truth = {seat: naive(request, COUNT + 8) for seat, request in requests().items()}
    rig.step(enter=requests())
    while min(len(rig.output(seat)) for seat in rig.requests) < COUNT:
        drafts = {}
        for seat in rig.requests:
            ahead = truth[seat][len(rig.output(seat)) :][: rng.randrange(4)]
            # Wrong ones among them: stop tokens too, which may not be taken before their time.
            drafts[seat] = [t if rng.random() < 0.7 else rng.randrange(VOCAB) for t in ahead]
        rig.step(drafts=drafts)
        for seat in rig.requests:
            drawn = rig.output(seat)[: COUNT + 8]
            assert drawn == truth[seat][: len(drawn)]
        if max(len(rig.output(seat)) for seat in rig.requests) > COUNT + 4:
            break


def test_rows_that_hold_nothing_keep_their_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    rig = Rig()
    sampler = rig.worker.sampler  # type: ignore[attr-defined]
    sample = sampler.sample

    def noted(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        seen.append(logits.clone())
        drawn: torch.Tensor = sample(logits, batch)
        return drawn

    monkeypatch.setattr(sampler, "sample", noted)
    rig.step(enter=requests())
    lowest = torch.isinf(seen[0]).sum(dim=1).tolist()
    held = [
        len(set(request.params.stop_token_ids)) if request.params.min_tokens else 0
        for request in rig.requests.values()
    ]
    assert sorted(lowest) == sorted(held)


def test_once_nothing_is_held_any_more_no_work_is_left() -> None:
    rig = Rig()
    rig.step(enter={0: request_of([1, 2], stop_token_ids=[3], min_tokens=2)})
    batch = rig.worker.batch  # type: ignore[attr-defined]
    for number in range(1, 4):
        rules = batch.rows(np.array([0], dtype=np.int32)).rules
        assert len(rules) == (number < 3)
        rig.step()


def test_a_corrupted_row_stays_corrupted() -> None:
    adapter = TinyAdapter()
    rig = Rig()
    rig.step(enter={0: request_of([1, 2], stop_token_ids=[3], min_tokens=2)})
    rig.worker.adapter.head = adapter.head * float("nan")  # type: ignore[attr-defined]
    assert rig.step().corrupted == [0]


# --- tokens by name ---


def told(request: Request, token: int, before: list[int]) -> torch.Tensor:
    """The model's own log-probabilities behind these tokens."""
    return dense_logits(TinyAdapter(), before)[-1].log_softmax(0)


def test_named_tokens_are_told_instead_of_the_most_likely() -> None:
    named = (7, 2, 19)
    rig = Rig()
    entering = {
        0: request_of([1, 2, 3], 0, logprobs=2),
        1: request_of([4, 5], 1, temperature=1.0, logprobs=0, logprob_token_ids=named),
        2: request_of([6], 2),
        3: request_of([9, 9], 3, logprobs=5, logprob_token_ids=[11]),
    }
    entries: dict[int, list[TokenLogprob]] = {seat: [] for seat in entering}
    for number in range(4):
        step = rig.plan(enter=entering if number == 0 else None)
        result = rig.worker.execute(step).result()
        for row, own in logprobs_of(result).items():
            entries[int(step.seats[row])] += own
        rig._take(step, result)
    assert entries[2] == []
    for seat, ids in ((1, named), (3, (11,))):
        request = rig.requests[seat]
        for position, entry in enumerate(entries[seat]):
            before = request.token_ids[: request.num_prompt_tokens + position]
            expected = told(request, entry.token_id, before)
            assert entry.token_id == rig.output(seat)[position]
            assert entry.logprob == pytest.approx(float(expected[entry.token_id]), abs=1e-5)
            assert [token for token, _ in entry.top] == list(ids)
            for token, logprob in entry.top:
                assert logprob == pytest.approx(float(expected[token]), abs=1e-5)
    for entry in entries[0]:
        assert len(entry.top) == 2
        assert entry.top[0] == (entry.token_id, entry.logprob)
        assert entry.rank is None


def test_the_seat_of_named_tokens_forgets_them_with_its_request() -> None:
    rig = Rig()
    rig.step(enter={0: request_of([4, 5], 1, logprobs=0, logprob_token_ids=[3])})
    result = rig.step(enter={0: request_of([4, 5], 2, logprobs=1)})
    (entry,) = logprobs_of(result)[0]
    assert entry.top == ((entry.token_id, entry.logprob),)


def test_masks_and_held_tokens_leave_each_other_alone() -> None:
    """The masked seat is its matcher's affair: the worker holds nothing back for it."""

    def only(step: StepInput) -> StepMasks:
        bits = np.zeros((1, -(-VOCAB // 8)), dtype=np.uint8)
        bits[0, 3 // 8] = 1 << 3 % 8
        return StepMasks(step.step, np.array([1], dtype=np.int32), bits)

    free = request_of([1, 2], 0, stop_token_ids=list(range(VOCAB - 1)), min_tokens=2)
    bound = request_of([1, 2], 1, stop_token_ids=[3], min_tokens=2)
    bound.matcher = object()
    rig = Rig()
    rig.step(enter={0: free, 1: bound}, masks=only)
    assert rig.output(1) == [3]
    assert rig.output(0) == [VOCAB - 1]
    assert NUM_SEATS > 2
