"""The rows that a sampler is given: seats' parameters, flags, counters, and what rules make of them."""

import random

import numpy as np
import pytest
import torch

from solutions.sampler import Sampler
from tests.worker.rig import CPU, MIXED, VOCAB, new_of, request_of
from yaie.core.batch import PenaltyBatch
from yaie.core.request import Request
from yaie.core.step import StepMasks
from yaie.worker.input_batch import InputBatch
from yaie.worker.rows import Rows
from yaie.worker.rules.masks import apply_masks

NUM_SEATS = 20
NEG_INF = float("-inf")


def empty() -> InputBatch:
    return InputBatch(NUM_SEATS, 1, VOCAB, CPU)


def state_of(requests: dict[int, Request]) -> InputBatch:
    state = empty()
    state.enter(new_of(requests))
    return state


def rows_of(state: InputBatch, *seats: int) -> Rows:
    """The rows of these seats, to which their rules have been applied."""
    rows = state.rows(np.array(seats, np.int32))
    apply_rules(torch.zeros(len(seats), VOCAB), rows)
    return rows


def apply_rules(logits: torch.Tensor, rows: Rows) -> None:
    for rule in rows.rules:
        rule.apply(logits, rows)


def rules_of(rows: Rows) -> list[str]:
    return [rule.name for rule in rows.rules]


def penalties_of(rows: Rows) -> PenaltyBatch:
    assert rows.batch.penalties is not None
    return rows.batch.penalties


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2), (3,), (1, 4, 0, 2)])
def test_rows_are_the_parameters_of_their_seats_in_order(order: tuple[int, ...]) -> None:
    requests = {seat: request_of([1], seed=50 + seat, **MIXED[seat]) for seat in range(5)}
    batch = rows_of(state_of(requests), *order).batch
    params = [requests[seat].params for seat in order]
    assert batch.temperature.tolist() == pytest.approx([one.temperature for one in params])
    assert batch.top_k.tolist() == [max(0, one.top_k) for one in params]
    assert batch.top_p.tolist() == pytest.approx([one.top_p for one in params])
    assert batch.min_p.tolist() == pytest.approx([one.min_p for one in params])
    assert batch.seeds.tolist() == [50 + seat for seat in order]
    assert batch.all_greedy == all(one.temperature == 0 for one in params)
    assert batch.any_top_k == any(one.top_k > 0 for one in params)
    assert batch.any_top_p == any(one.top_p < 1 for one in params)
    assert batch.any_min_p == any(one.min_p > 0 for one in params)
    asks = {2, 3}  # for penalties
    assert (batch.penalties is None) == asks.isdisjoint(order)
    if batch.penalties is not None:
        assert batch.penalties.presence.tolist() == [one.presence_penalty for one in params]
        assert batch.penalties.frequency.tolist() == [one.frequency_penalty for one in params]
        wanted = [one.repetition_penalty for one in params]
        assert batch.penalties.repetition.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("top_k", [VOCAB + 1, 2**31 - 1])
def test_top_k_beyond_the_vocabulary_is_all_of_it(top_k: int) -> None:
    state = state_of({0: request_of([1], top_k=top_k)})
    assert rows_of(state, 0).batch.top_k.tolist() == [VOCAB]


def test_dtypes_are_those_of_the_contract() -> None:
    batch = rows_of(state_of({0: request_of([1], presence_penalty=1.0)}), 0).batch
    for part in (batch.temperature, batch.top_p, batch.min_p):
        assert part.dtype == torch.float32
    for part in (batch.top_k, batch.seeds, batch.steps):
        assert part.dtype == torch.int64
    penalties = batch.penalties
    assert penalties is not None
    assert penalties.output_counts.dtype == torch.float32
    assert penalties.prompt_mask.dtype == torch.bool


def test_step_is_the_index_of_the_token_to_draw() -> None:
    requests = {0: request_of([1]), 1: request_of([2]), 2: request_of([3])}
    requests[1].token_ids += [4, 4]
    state = state_of(requests)
    rows = rows_of(state, 0, 1)
    assert rows.batch.steps.tolist() == [0, 2]
    state.advance(rows, torch.tensor([5, 6]))
    assert rows_of(state, 0, 1).batch.steps.tolist() == [1, 3]
    state.advance(rows_of(state, 1), torch.tensor([7]))
    assert rows_of(state, 2, 1, 0).batch.steps.tolist() == [0, 4, 1]


def test_only_chosen_rows_move_on() -> None:
    requests = {seat: request_of([1], presence_penalty=1.0) for seat in range(3)}
    state = state_of(requests)
    state.advance(rows_of(state, 0, 1, 2), torch.tensor([5, 6, 7]), torch.tensor([0, 2]))
    rows = rows_of(state, 0, 1, 2)
    assert rows.batch.steps.tolist() == [1, 0, 1]
    assert penalties_of(rows).output_counts.nonzero().tolist() == [[0, 5], [2, 7]]


def test_in_a_run_of_steps_of_the_same_seats_the_rows_are_made_once() -> None:
    state = state_of({0: request_of([1]), 1: request_of([2])})
    first = rows_of(state, 0, 1)
    state.advance(first, torch.tensor([1, 1]))
    assert rows_of(state, 0, 1) is first


def test_seat_that_changes_hands_has_another_request_s_rows_at_once() -> None:
    state = state_of({0: request_of([1], temperature=1.0), 1: request_of([2])})
    first = rows_of(state, 0, 1)
    state.advance(first, torch.tensor([1, 1]))
    other = request_of([3], seed=9, top_k=2, logprobs=1, logit_bias=((4, 1.0),))
    state.enter(new_of({0: other}))
    rows = rows_of(state, 0, 1)
    assert rows.batch.temperature.tolist() == [0, 0]
    assert rows.batch.top_k.tolist() == [2, 0]
    assert rows.batch.seeds.tolist() == [9, 0]
    assert rows.batch.steps.tolist() == [0, 1]
    assert (rows.batch.all_greedy, rows.batch.any_top_k) == (True, True)
    assert rules_of(rows) == ["biases"]
    state.enter(new_of({0: request_of([3])}))
    rows = rows_of(state, 0, 1)
    assert (rules_of(rows), rows.batch.any_top_k) == ([], False)


# --- penalties ---


def counts_of(tokens: list[int]) -> list[int]:
    return [tokens.count(token) for token in range(VOCAB)]


@pytest.mark.parametrize("seed", range(3))
def test_penalties_count_as_a_naive_count_does_whoever_comes_and_goes(seed: int) -> None:
    """With more seats than the first rows of counts, so that these grow, and with plain neighbours."""
    rng = random.Random(seed)
    state = empty()
    requests: dict[int, Request] = {}
    for _ in range(60):
        entering = rng.sample(range(NUM_SEATS), rng.choice([0, 0, 1, 6]))
        fresh = {seat: _some_request(rng) for seat in entering}
        if fresh:
            state.enter(new_of(fresh))
            requests |= fresh
        if not requests:
            continue
        chosen = rng.sample(list(requests), rng.randint(1, len(requests)))
        rows = rows_of(state, *chosen)
        asks = [requests[seat].params.frequency_penalty != 0 for seat in chosen]
        assert (rows.batch.penalties is None) == (not any(asks))
        if rows.batch.penalties is not None:
            for row, seat in enumerate(chosen):
                _assert_counts(rows.batch.penalties, row, requests[seat], asks[row])
        drawn = [rng.randrange(VOCAB) for _ in chosen]
        state.advance(rows, torch.tensor(drawn))
        for seat, token in zip(chosen, drawn, strict=True):
            requests[seat].token_ids.append(token)


def _some_request(rng: random.Random) -> Request:
    request = request_of(
        [rng.randrange(VOCAB) for _ in range(rng.randint(1, 6))],
        frequency_penalty=rng.choice([0.0, 1.0]),
    )
    request.token_ids += [rng.randrange(VOCAB) for _ in range(rng.choice([0, 0, 5]))]
    return request


def _assert_counts(penalties: PenaltyBatch, row: int, request: Request, asks: bool) -> None:
    prompt = request.token_ids[: request.num_prompt_tokens]
    seen = [token in prompt for token in range(VOCAB)]
    wanted = counts_of(request.output_token_ids)
    # What a row that asks for no penalty holds changes nothing; it is nobody's, hence empty.
    assert penalties.output_counts[row].tolist() == (wanted if asks else [0] * VOCAB)
    assert penalties.prompt_mask[row].tolist() == (seen if asks else [False] * VOCAB)


def test_neighbour_without_penalties_is_not_penalised() -> None:
    plain, asks = request_of([1, 1, 2]), request_of([3], presence_penalty=1, repetition_penalty=2)
    state = state_of({0: plain, 1: asks})
    penalties = penalties_of(rows_of(state, 0, 1))
    assert penalties.presence.tolist() == [0, 1]
    assert penalties.repetition.tolist() == [1, 2]


def test_penalties_end_with_the_request_that_wanted_them() -> None:
    state = state_of({0: request_of([1]), 1: request_of([3], presence_penalty=1)})
    assert rows_of(state, 0, 1).batch.penalties is not None
    assert rows_of(state, 0).batch.penalties is None
    state.enter(new_of({1: request_of([3])}))
    assert rows_of(state, 0, 1).batch.penalties is None


def test_sampler_that_writes_to_its_counts_changes_no_seat() -> None:
    state = state_of({0: request_of([1], presence_penalty=1)})
    penalties_of(rows_of(state, 0)).output_counts.fill_(7)
    assert penalties_of(rows_of(state, 0)).output_counts.sum() == 0


# --- biases and masks ---


def test_biases_are_added_where_they_were_asked_for() -> None:
    requests = {
        0: request_of([1], logit_bias=((3, 2.0), (5, -100.0))),
        1: request_of([1]),
        2: request_of([1], logit_bias=((3, 1.5),)),
    }
    state = state_of(requests)
    for order in ((0, 1, 2), (2, 0), (1, 2)):
        logits = torch.zeros(len(order), VOCAB)
        apply_rules(logits, rows_of(state, *order))
        wanted = torch.zeros(len(order), VOCAB)
        for row, seat in enumerate(order):
            for token, bias in requests[seat].params.logit_bias:
                wanted[row, token] += bias
        assert torch.equal(logits, wanted)
    assert rules_of(rows_of(state, 1)) == []


def constrained(*seats: int, among: int) -> InputBatch:
    requests = {seat: request_of([1]) for seat in range(among)}
    for seat in seats:
        requests[seat].matcher = object()
    return state_of(requests)


def masks_of(seats: list[int], allowed: np.ndarray) -> StepMasks:
    bits = np.packbits(allowed, axis=1, bitorder="little")
    return StepMasks(0, np.array(seats, np.int32), bits)


def test_masks_forbid_what_they_do_not_allow_in_their_rows_alone() -> None:
    rows = rows_of(constrained(1, 3, among=4), 3, 0, 1)
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    allowed = np.random.default_rng(0).integers(0, 2, (2, VOCAB))
    masked = logits.clone()
    apply_masks(masked, rows, masks_of([3, 1], allowed))
    wanted = logits.clone()
    for row, mask in ((0, allowed[0]), (2, allowed[1])):
        wanted[row, torch.from_numpy(mask) == 0] = NEG_INF
    assert torch.equal(masked, wanted)


def test_masks_may_be_wider_than_the_vocabulary() -> None:
    rows = rows_of(constrained(0, among=1), 0)
    logits = torch.zeros(1, VOCAB - 3)
    apply_masks(logits, rows, masks_of([0], np.ones((1, VOCAB), np.uint8)))
    assert torch.equal(logits, torch.zeros(1, VOCAB - 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_row_that_is_not_finite_stays_so_under_its_mask(value: float) -> None:
    state = constrained(0, 1, among=3)
    rows = rows_of(state, 0, 1, 2)
    logits = torch.zeros(3, VOCAB)
    logits[0, 7] = value
    allowed = np.zeros((2, VOCAB), np.uint8)
    allowed[:, 4] = 1  # token 7 is not allowed: filling its logit in would hide what it was
    apply_masks(logits, rows, masks_of([0, 1], allowed))
    assert Sampler().sample(logits, rows.batch).tolist() == [-1, 4, 0]


def test_row_of_which_nothing_is_allowed_draws_nothing() -> None:
    rows = rows_of(constrained(0, 1, among=2), 0, 1)
    allowed = np.zeros((2, VOCAB), np.uint8)
    allowed[1, 9] = 1
    logits = torch.zeros(2, VOCAB)
    apply_masks(logits, rows, masks_of([0, 1], allowed))
    assert Sampler().sample(logits, rows.batch).tolist() == [-1, 9]
