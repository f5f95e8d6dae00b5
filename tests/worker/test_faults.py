"""What goes wrong in a row or in a step stays there: other rows and later steps know nothing of it."""

import numpy as np
import pytest
import torch

from tests.worker.rig import (
    VOCAB,
    Rig,
    TinyAdapter,
    make_worker,
    mixed_requests,
    naive_tokens,
    request_of,
)
from yaie.core.batch import SamplingBatch
from yaie.core.contracts import Attend
from yaie.core.step import StepMasks

POISON = VOCAB
"""A token that only prompts hold."""


class PoisonedAdapter(TinyAdapter):
    """Computes NaN wherever it meets POISON, and with `spreads` for what attends to it, too."""

    def __init__(self, *, spreads: bool) -> None:
        super().__init__()
        value = float("nan") if spreads else 0.0
        poison = torch.full_like(self.embedding[:1], value)
        self.embedding = torch.cat([self.embedding, poison])

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """See `ModelAdapter`."""
        hidden = super().forward(token_ids, positions, attend)
        hidden[token_ids == POISON] = float("nan")
        return hidden


def poisoned(*, spreads: bool = True) -> Rig:
    return Rig(make_worker(PoisonedAdapter(spreads=spreads)))


def test_model_that_raises_is_a_fault_and_later_steps_go_on() -> None:
    adapter = TinyAdapter()
    rig = Rig(make_worker(adapter))
    request = request_of([1, 2, 3], temperature=1.0)
    rig.step(enter={0: request})
    adapter.fails = True
    result = rig.worker.execute(step := rig.plan()).result()
    assert result.fault is not None
    assert result.fault.message == "this model is out of order"
    assert result.fault.where == "RuntimeError"
    assert result.step == step.step
    assert (result.token_ids, result.corrupted, result.extras) == ([], [], {})
    adapter.fails = False
    rig.step()
    rig.step(enter={1: request_of([4, 4])})
    assert rig.output(0) == naive_tokens(request, 3)
    assert rig.output(1) == naive_tokens(rig.requests[1], 1)


def test_step_that_failed_says_why_when_its_masks_come_too() -> None:
    adapter = TinyAdapter()
    adapter.fails = True
    rig = Rig(make_worker(adapter))
    request = request_of([1, 2])
    request.matcher = object()
    step = rig.plan(enter={0: request})
    step.masked = True
    handle = rig.worker.execute(step)
    handle.mask(StepMasks(0, np.array([0], np.int32), np.full((1, 3), 255, np.uint8)))
    fault = handle.result().fault
    assert fault is not None
    assert fault.message == "this model is out of order"


class RaisingSampler:
    """A learner's, not written yet."""

    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        """See the contract."""
        raise SystemExit("no solution yet")


def test_part_that_exits_is_a_fault_too() -> None:
    rig = Rig(make_worker(sampler=RaisingSampler()))
    result = rig.step(enter={0: request_of([1])})
    assert result.fault is not None
    assert result.fault.message == "no solution yet"


def test_masks_of_other_seats_are_a_fault() -> None:
    rig = Rig()
    request = request_of([1, 2])
    request.matcher = object()
    step = rig.plan(enter={0: request})
    step.masked = True
    handle = rig.worker.execute(step)
    handle.mask(StepMasks(step.step, np.array([3], np.int32), np.full((1, 3), 255, np.uint8)))
    fault = handle.result().fault
    assert fault is not None
    assert "masks for seats [3], not [0]" in fault.message


def test_row_that_is_not_finite_draws_nothing_and_is_named() -> None:
    rig = poisoned()
    healthy = {seat: mixed_requests()[seat] for seat in (0, 1, 2)}
    rig.step(enter=healthy)
    # Of a single token only its logits tell, which the sampler sees.
    step = rig.plan(enter={3: request_of([POISON])})
    result = rig.worker.execute(step).result()
    assert result.corrupted == [step.seats.tolist().index(3)]
    assert result.token_ids[result.corrupted[0]] == []
    rig._take(step, result)
    del rig.requests[3]
    rig.step()
    for seat, request in healthy.items():
        assert rig.output(seat) == naive_tokens(request, 3)


def test_step_behind_a_row_that_drew_nothing_goes_on() -> None:
    """It was sent before control knew."""
    rig = poisoned()
    first = rig.plan(enter={0: request_of([1]), 1: request_of([POISON])})
    in_flight = rig.worker.execute(first)
    rig.computed |= {0: 1, 1: 1}
    behind = rig.plan()
    behind.num_tokens[:], behind.samples[:] = 1, True
    handle = rig.worker.execute(behind)
    assert in_flight.result().corrupted == [1]
    result = handle.result()
    assert result.fault is None
    assert result.token_ids[0] == naive_tokens(request_of([1]), 2)[1:]


def test_nan_in_a_middle_chunk_is_told_of_that_row_alone() -> None:
    rig = poisoned()
    prompts = {0: [1] * 9, 1: [2, 3, POISON, 4, 5, 6, 7, 8, 9], 2: [5] * 9, 3: [6]}
    requests = {seat: request_of(prompt, seat) for seat, prompt in prompts.items()}
    step = rig.plan(enter=requests, most=4)
    result = rig.worker.execute(step).result()
    assert step.samples.tolist() == [True, False, False, False]
    assert [int(step.seats[row]) for row in result.corrupted] == [1]
    assert len(result.token_ids) == 1
    rig._take(step, result)
    del rig.requests[1]
    for _ in range(3):
        assert rig.step(most=4).corrupted == []
    for seat in (0, 2, 3):
        assert rig.output(seat) == naive_tokens(requests[seat], len(rig.output(seat)))


@pytest.mark.parametrize("spreads", [True, False])
@pytest.mark.parametrize("place", range(5))
def test_nan_at_any_place_of_a_sampling_chunk_is_told(place: int, spreads: bool) -> None:
    """Also where the token that is drawn knows nothing of it: its K and V may be found by others."""
    rig = poisoned(spreads=spreads)
    prompt = [3, 1, 4, 1, 5]
    prompt[place] = POISON
    requests = {
        0: request_of([7]),
        1: request_of([2, 2]),
        2: request_of(prompt),
        3: request_of([8, 8]),
    }
    step = rig.plan(enter=requests)
    result = rig.worker.execute(step).result()
    assert [int(step.seats[row]) for row in result.corrupted] == [2]
    drawn = dict(zip(step.seats.tolist(), result.token_ids, strict=True))
    for seat in (0, 1, 3):
        assert drawn[seat] == naive_tokens(requests[seat], 1)


def test_single_prompt_token_that_samples_nothing_is_checked_too() -> None:
    rig = poisoned()
    result = rig.step(enter={0: request_of([1, 2]), 1: request_of([POISON, 2])}, most=1)
    assert (result.token_ids, result.corrupted) == ([], [1])
