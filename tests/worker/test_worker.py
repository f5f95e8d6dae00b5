"""A worker draws what a naive loop draws, and what goes wrong in a row or a step stays there."""

from typing import Any

import numpy as np
import pytest
import torch

from solutions.sampler import Sampler
from tests.worker.rig import (
    MAX_LEN,
    NUM_SEATS,
    VOCAB,
    Rig,
    TinyAdapter,
    dense_logits,
    logprobs_of,
    make_worker,
    mixed_requests,
    naive_tokens,
    request_of,
    step_of,
)
from yaie.core.batch import SamplingBatch
from yaie.core.logprobs import TokenLogprob
from yaie.core.step import StepInput, StepMasks


@pytest.mark.parametrize("most", [MAX_LEN, 4, 3, 1])
def test_a_batch_draws_what_each_request_draws_alone_however_prompts_are_cut(most: int) -> None:
    rig = Rig()
    rig.step(enter=mixed_requests(), most=most)
    while min(len(rig.output(seat)) for seat in range(NUM_SEATS)) < 8:
        rig.step(most=most)
    for seat, request in rig.requests.items():
        drawn = rig.output(seat)
        assert drawn == naive_tokens(request, len(drawn))


def test_seats_come_and_go_and_the_others_draw_on() -> None:
    rig = Rig()
    requests = mixed_requests()
    rig.step(enter={0: requests[0], 1: requests[1]})
    rig.step(enter={4: requests[4]})
    rig.step(1, 4)
    other = request_of([7, 7, 2], seed=9, temperature=1.0, frequency_penalty=1.0)
    rig.step(4, 0, enter={0: other})  # the first is over, and its seat has another request
    rig.step(enter={3: requests[3]})
    for _ in range(5):
        rig.step()
    assert [len(rig.output(seat)) for seat in (0, 1, 3, 4)] == [7, 9, 6, 9]
    for seat, request in rig.requests.items():
        assert rig.output(seat) == naive_tokens(request, len(rig.output(seat)))


def test_a_request_that_comes_back_with_its_output_goes_on_where_it_was() -> None:
    rig = Rig()
    requests = mixed_requests()
    rig.step(enter=requests)
    for _ in range(4):
        rig.step()
    rig.step(enter={2: requests[2], 3: requests[3]})  # preempted meanwhile: all is computed again
    for _ in range(4):
        rig.step()
    for seat, request in requests.items():
        assert rig.output(seat) == naive_tokens(request, 10)


def test_swapped_in_request_takes_its_last_token_from_what_it_is_sent() -> None:
    rig = Rig()
    request = mixed_requests()[1]
    rig.step(enter={1: request})
    rig.step()
    computed = rig.computed[1]
    rig.step(enter={0: request_of([3])}, most=MAX_LEN)
    step = rig.plan(0, enter={1: request})
    rig.computed[1] = computed + 1  # its blocks came back from the host
    step = rig.plan(1)
    step.new = rig.plan(0, enter={1: request}).new
    result = rig.worker.execute(step).result()
    assert result.token_ids == [naive_tokens(request, 4)[3:]]


def test_blocks_are_moved_before_anything_is_computed() -> None:
    rig = Rig()
    rig.step(enter={0: request_of([1, 2, 3, 4, 5])})
    rig.step()
    keys, values = rig.worker.pool.blocks(0)  # type: ignore[attr-defined]
    table = rig.worker.batch.tables[0, :2].tolist()  # type: ignore[attr-defined]
    fresh = rig.worker.batch.tables[4, :2].tolist()  # type: ignore[attr-defined]
    step = rig.plan(0)
    step.copies = np.array(list(zip(table, fresh, strict=True)))
    step.table_seats, step.table_columns = np.array([[0, 0], [0, 1]], np.int32)
    step.table_blocks = np.array(fresh, np.int32)
    drawn = rig.worker.execute(step).result().token_ids
    assert drawn == [naive_tokens(rig.requests[0], 3)[2:]]
    assert torch.equal(keys[table[0]], keys[fresh[0]])
    assert torch.equal(values[table[0]], values[fresh[0]])


def test_step_that_only_moves_blocks_draws_nothing() -> None:
    rig = Rig()
    rig.step(enter={0: request_of([1, 2])})
    result = rig.worker.execute(step_of(number=1, copies=np.array([[0, 1]]))).result()
    assert (result.token_ids, result.corrupted, result.fault) == ([], [], None)


def test_output_that_is_computed_again_is_no_prompt_and_tells_nothing() -> None:
    rig = Rig()
    request = request_of([4, 9, 1], prompt_logprobs=0)
    request.token_ids += [6, 6]
    step = rig.plan(enter={0: request})
    result = rig.worker.execute(step).result()
    told = logprobs_of(result, "prompt_logprobs")
    assert [entry.token_id for entry in told[0]] == [9, 1]


class OverwritingSampler:
    """Leaves nothing of the logits it is given, as the contract allows."""

    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        """See the contract."""
        drawn: torch.Tensor = Sampler().sample(logits.clone(), batch)
        logits.zero_().add_(1.0)
        logits[:, 0] = float("nan")
        return drawn


def test_sampler_may_overwrite_its_logits() -> None:
    rig = Rig(make_worker(sampler=OverwritingSampler()))
    requests = mixed_requests()
    for request in requests.values():
        request.params = type(request.params)(**{**_fields(request.params), "logprobs": 2})
    rig.step(enter=requests)
    for _ in range(5):
        result = rig.step()
        assert result.fault is None
        told = [own[0].logprob for own in logprobs_of(result).values()]
        assert len(told) == NUM_SEATS
        assert all(np.isfinite(told))
    for seat, request in rig.requests.items():
        assert rig.output(seat) == naive_tokens(request, 6)


def _fields(params: Any) -> dict[str, Any]:
    return {name: getattr(params, name) for name in params.__dataclass_fields__}


def assert_tells(entry: TokenLogprob, row: torch.Tensor, token: int, num_top: int) -> None:
    """An entry against the logits [vocab] that it is about."""
    logprobs = row.log_softmax(0)
    best = logprobs.topk(num_top)
    assert entry.token_id == token
    assert entry.logprob == pytest.approx(logprobs[token].item(), abs=1e-5)
    assert [number for number, _ in entry.top] == best.indices.tolist()
    assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_logprobs_of_drawn_and_of_prompt_tokens_are_the_model_s_own() -> None:
    rig = Rig()
    bias = ((2, 50.0),)
    told = request_of([4, 9, 1, 6, 6, 2, 8], 1, logprobs=3, prompt_logprobs=2, logit_bias=bias)
    silent = request_of([5, 5], 2)
    step = rig.plan(enter={2: silent, 0: told}, most=4)
    rows = step.seats.tolist()
    result = rig.worker.execute(step).result()
    rig._take(step, result)
    logits = dense_logits(TinyAdapter(), told.token_ids)
    ((row, entries),) = logprobs_of(result, "prompt_logprobs").items()
    assert row == rows.index(0)
    for place, entry in enumerate(entries):
        assert_tells(entry, logits[place], told.token_ids[place + 1], 2)
    assert len(entries) == 4

    step = rig.plan()
    rows = step.seats.tolist()
    result = rig.worker.execute(step).result()
    entries = logprobs_of(result, "prompt_logprobs")[rows.index(0)]
    assert [entry.token_id for entry in entries] == [2, 8]
    ((row, entries),) = logprobs_of(result).items()
    assert row == rows.index(0)
    assert_tells(entries[0], logits[-1], 2, 3)


def test_masks_decide_what_constrained_rows_draw_and_no_others() -> None:
    rig = Rig()
    requests = {0: request_of([1, 2]), 1: request_of([3, 4]), 2: request_of([5])}
    requests[1].matcher = requests[2].matcher = object()

    def masks(step: StepInput) -> StepMasks:
        allowed = np.zeros((2, VOCAB), np.uint8)
        rows = [seat for seat in step.seats.tolist() if seat]
        allowed[rows.index(1), 17] = allowed[rows.index(2), 6] = 1
        return StepMasks(step.step, np.array(rows, np.int32), _packed(allowed))

    first = rig.step(enter=requests, masks=masks)
    assert first.fault is None
    assert (rig.output(1), rig.output(2)) == ([17], [6])
    assert rig.output(0) == naive_tokens(requests[0], 1)
    rig.step(masks=masks)
    assert (rig.output(1), rig.output(2)) == ([17, 17], [6, 6])


def test_seat_of_which_nothing_is_allowed_draws_nothing() -> None:
    rig = Rig()
    requests = {0: request_of([1, 2], temperature=1.0), 1: request_of([3, 4], 1, temperature=1.0)}
    requests[1].matcher = object()
    result = rig.step(
        enter=requests,
        masks=lambda step: StepMasks(
            step.step, np.array([1], np.int32), np.zeros((1, VOCAB // 8), np.uint8)
        ),
    )
    assert result.token_ids == [naive_tokens(requests[0], 1), []]
    assert result.corrupted == [1]


def _packed(allowed: np.ndarray) -> np.ndarray:
    return np.packbits(allowed, axis=1, bitorder="little")
