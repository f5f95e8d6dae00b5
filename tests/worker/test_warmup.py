"""Made-up steps: every kind of step is among them, and two ways of computing are told apart."""

from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.sampler import Sampler
from tests.worker.rig import MAX_LEN, NUM_SEATS, VOCAB, TinyAdapter, make_worker
from yaie.core.contracts import Attend
from yaie.worker.warmup import WarmupError, tried, warm_up


class NotingAdapter(TinyAdapter):
    """Notes how many tokens came at once, and how far the positions went."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []
        self.furthest = 0

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter`."""
        self.counts.append(len(token_ids))
        self.furthest = max(self.furthest, int(positions.max()))
        return super().forward(token_ids, positions, attend)


def test_the_largest_step_comes_first_and_none_is_larger() -> None:
    """The memory that steps take is seen on an allocator that nothing has cut to pieces yet."""
    adapter = NotingAdapter()
    warm_up(make_worker(adapter), 100, NUM_SEATS)
    assert adapter.counts[0] == max(adapter.counts) == 100
    assert adapter.furthest == MAX_LEN - 1
    assert {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65} <= set(adapter.counts)


def test_every_number_of_rows_is_drawn_for_with_every_filter() -> None:
    seen = set()

    class Noting(Sampler):
        def sample(self, logits: Tensor, batch: Any) -> Tensor:
            flags = (batch.any_top_k, batch.any_top_p, batch.any_min_p, batch.penalties is None)
            seen.add((len(logits), *flags))
            drawn: Tensor = super().sample(logits, batch)
            return drawn

    warm_up(make_worker(sampler=Noting()), 16, NUM_SEATS)
    for rows in range(1, NUM_SEATS + 1):
        for flags in [
            (False, False, False, True),
            (True, False, False, True),
            (False, True, False, True),
            (False, False, True, True),
            (True, True, True, True),
            (False, False, False, False),
        ]:
            assert (rows, *flags) in seen


@pytest.mark.parametrize(("budget", "most"), [(1, 1), (1, 5), (3, 2), (64, 1), (500, 5)])
def test_any_budget_will_do(budget: int, most: int) -> None:
    warm_up(make_worker(), budget, most)


def test_a_step_that_breaks_says_why() -> None:
    adapter = TinyAdapter()
    adapter.fails = True
    with pytest.raises(WarmupError, match="out of order") as caught:
        warm_up(make_worker(adapter), 16, 2)
    assert caught.value.fault.where == "RuntimeError"


def test_trials_agree_where_nothing_differs_and_tell_what_does() -> None:
    first, again = tried(make_worker(), 3), tried(make_worker(), 3)
    assert first == again
    assert len(first) == 6
    assert [len(result.token_ids) for result in first] == [3] * 6
    assert any("logprobs" in result.extras for result in first)

    class Forgetful(TinyAdapter):
        """Its positions are those of the first decode, as in a graph that recorded them by value."""

        seen: Tensor | None = None

        def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
            if len(token_ids) == 3:
                self.seen = positions if self.seen is None else self.seen
                positions = self.seen
            return super().forward(token_ids, positions, attend)

    assert tried(make_worker(Forgetful()), 3) != first


def test_a_trial_leaves_nothing_that_a_later_request_could_see() -> None:
    worker = make_worker()
    tried(worker, 3)
    assert worker.batch.last_tokens.shape == (NUM_SEATS + 1,)
    assert int(worker.batch.last_tokens.max()) < VOCAB
    assert torch.equal(worker.batch.tables[NUM_SEATS], torch.zeros_like(worker.batch.tables[0]))
