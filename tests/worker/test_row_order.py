"""A step without some of its rows: out of memory costs prompts, not the requests that answer already."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.worker.rig import (
    VOCAB,
    Rig,
    TinyAdapter,
    logprobs_of,
    make_worker,
    mixed_requests,
    naive_tokens,
    request_of,
)
from yaie.core.contracts import Attend
from yaie.core.step import StepInput, StepMasks


class SmallAdapter(TinyAdapter):
    """Has memory for so many tokens at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter`."""
        if len(token_ids) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(token_ids, positions, attend)


def test_prompts_end_and_the_others_draw_what_they_would_have() -> None:
    rig = Rig(make_worker(SmallAdapter(24)))
    requests = mixed_requests()
    rig.step(enter={2: requests[2]})
    rig.step(enter={4: requests[4]})
    rig.step()
    prompt = request_of(range(22), 7)
    result = rig.step(2, 4, 0, enter={0: prompt})
    assert result.out_of_memory == []  # 24 tokens
    result = rig.step(2, 4, 0, enter={0: request_of(range(23), 8)})
    assert result.fault is None
    assert result.out_of_memory == [2]
    assert [len(tokens) for tokens in result.token_ids] == [1, 1, 0]
    for seat in (2, 4):
        rig.step(seat)
        assert rig.output(seat) == naive_tokens(requests[seat], len(rig.output(seat)))


def test_what_was_drawn_stands_in_the_place_of_its_row() -> None:
    """Rows that were shed drew nothing; those behind them keep their numbers."""
    rig = Rig(make_worker(SmallAdapter(8)))
    running = {
        0: request_of([1, 2], 0, logprobs=1, temperature=1.0),
        3: request_of([3], 3, temperature=1.0),
    }
    rig.step(enter=running)
    result = rig.step(enter={1: request_of(range(20), 1, logprobs=1), 2: request_of([4, 5], 2)})
    assert result.out_of_memory == [2, 3]
    assert [len(tokens) for tokens in result.token_ids] == [1, 1, 0, 0]
    assert list(logprobs_of(result)) == [0]
    for seat in (1, 2):
        del rig.requests[seat]
    for _ in range(3):
        rig.step()
    for seat, request in running.items():
        assert rig.output(seat) == naive_tokens(request, 5), seat


def test_masks_of_shed_prompts_are_passed_over() -> None:
    rig = Rig(make_worker(SmallAdapter(8)))
    constrained = request_of([1, 2], 0)
    constrained.matcher = object()  # type: ignore[assignment]
    other = request_of(range(20), 1)
    other.matcher = object()  # type: ignore[assignment]

    def only(*tokens: int) -> object:
        def masks(step: StepInput) -> StepMasks:
            bits = np.zeros((len(step.seats), VOCAB), dtype=np.uint8)
            for row, token in enumerate(tokens):
                bits[row, token] = 1
            return StepMasks(step.step, step.seats, np.packbits(bits, axis=1, bitorder="little"))

        return masks

    rig.step(enter={0: constrained}, masks=only(7))  # type: ignore[arg-type]
    result = rig.step(enter={1: other}, masks=only(9, 11))  # type: ignore[arg-type]
    assert (result.token_ids, result.out_of_memory) == ([[9], []], [1])


@pytest.mark.parametrize("others", [True, False])
def test_a_step_whose_constrained_rows_are_all_shed_needs_no_mask(others: bool) -> None:
    """Its masks come all the same: control does not know yet."""
    rig = Rig(make_worker(SmallAdapter(8)))
    if others:
        rig.step(enter={0: request_of([1, 2], temperature=1.0)})
    prompt = request_of(range(20), 1)
    prompt.matcher = object()  # type: ignore[assignment]

    def all_allowed(step: StepInput) -> StepMasks:
        bits = np.full((1, -(-VOCAB // 8)), 0xFF, dtype=np.uint8)
        return StepMasks(step.step, step.seats[-1:], bits)

    result = rig.step(enter={1: prompt}, masks=all_allowed)
    assert result.fault is None
    assert [len(tokens) for tokens in result.token_ids] == ([1, 0] if others else [0])
    assert result.out_of_memory == [int(others)]


def test_a_step_without_prompts_cannot_shed_any() -> None:
    rig = Rig(make_worker(SmallAdapter(1)))
    rig.step(enter={0: request_of([1])})
    rig.step(0)
    rig.requests[1] = request_of([2])
    rig.computed[1] = 0
    rig.step(1, enter={1: request_of([2])})
    result = rig.step(0, 1)
    assert result.fault is not None
    assert "out of memory" in result.fault.message


@pytest.mark.parametrize("fits", [True, False])
def test_a_step_of_prompts_alone_ends_them_all(fits: bool) -> None:
    rig = Rig(make_worker(SmallAdapter(10 if fits else 9)))
    result = rig.step(enter={0: request_of(range(6)), 1: request_of(range(4))})
    assert result.fault is None
    assert result.out_of_memory == ([] if fits else [0, 1])
    assert [len(tokens) for tokens in result.token_ids] == ([1, 1] if fits else [0, 0])
