"""Ranks of the notebooks: threads on a wire that writes down what is sent."""

import pytest
import torch

from solutions.tensor_parallel import Ring
from yaie.core.errors import RankError
from yaie.core.threaded_ranks import ThreadLink, Wire


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_ring_runs_on_threads_and_its_bytes_are_counted(size: int) -> None:
    wire = Wire(size)
    results = wire.run(
        lambda link: Ring(link).all_reduce(torch.full((10 * size,), link.rank + 1.0))
    )
    total = size * (size + 1) / 2
    assert all(x.tolist() == [total] * (10 * size) for x in results)
    assert [wire.sent_by(rank) for rank in range(size)] == [2 * (size - 1) * 10 * 4] * size
    steps = sorted(sent.step for sent in wire.log if sent.source == 0)
    assert steps == list(range(2 * (size - 1)))


def test_what_a_rank_raises_comes_before_what_others_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yaie.core.threaded_ranks.SECONDS", 0.1)

    def work(link: ThreadLink) -> None:
        if link.rank:
            raise KeyError("mine")
        link.receive(torch.ones(1), 1).wait()

    with pytest.raises(KeyError, match="mine"):
        Wire(2).run(work)


def test_what_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie.core.threaded_ranks.SECONDS", 0.1)
    with pytest.raises(RankError, match="rank 0 waits in vain for rank 1"):
        Wire(2).run(lambda link: link.rank or link.receive(torch.ones(1), 1).wait())
