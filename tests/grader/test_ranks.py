"""Ranks on strict links: a deadlock is known at once, and what may go wrong on a link does."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from grader.kit.expect import Mismatch
from grader.kit.rank_group import SimGroup, run_together
from grader.kit.rank_links import SimLink, run_on
from grader.kit.rank_processes import RankProcesses
from grader.kit.script import current_script
from grader.submission import find_submission, load
from grader.suites.tensor_parallel import real
from solutions import tensor_parallel
from yaie.curriculum.manifest import load_curriculum

HERE = type("Part", (), {"__file__": __file__})
"""A part whose lines are this file's."""


def failure(size: int, work: Callable[[SimLink], Any]) -> str:
    with pytest.raises(Mismatch) as caught:
        run_on(HERE, size, work)
    error = caught.value
    return "\n".join(
        [error.problem, error.expected, error.got, error.why, getattr(error, "where", "")]
    )


def test_a_message_arrives_when_it_is_waited_for_and_not_before() -> None:
    seen = []

    def work(link: SimLink) -> Tensor:
        x = torch.tensor([float(link.rank)])
        transfer = link.send(x, 1) if link.rank == 0 else link.receive(x, 0)
        if link.rank:
            seen.append(x.item())
        transfer.wait()
        return x

    results, ranks = run_on(HERE, 2, work)
    assert [x.item() for x in results] == [0, 0]
    assert ranks.sent == [4, 0]
    assert seen[0] != seen[0], "NaN stands there until then"


def test_sends_that_wait_for_each_other_are_a_deadlock_with_each_rank_s_line() -> None:
    def work(link: SimLink) -> None:
        link.send(torch.ones(1), (link.rank + 1) % 3).wait()

    said = failure(3, work)
    assert said.startswith("deadlock: no rank can go on")
    for rank in range(3):
        awaited = f"rank {rank} waits for rank {(rank + 1) % 3} to receive"
        assert re.search(rf"{awaited} \(.*test_ranks\.py, line \d+: link", said)
    assert "begin both, then wait" in said


def test_a_collective_that_one_rank_does_not_call_is_a_deadlock() -> None:
    def work(group: SimGroup) -> None:
        if group.rank == 0:
            group.all_reduce(torch.ones(2))

    with pytest.raises(Mismatch) as caught:
        run_together(HERE, 2, work)
    assert re.search(
        r"rank 0 waits in all_reduce for rank 1 \(.*, line \d+: ", caught.value.problem
    )
    assert re.search(r"rank 1 has returned \(.*, line \d+: if group", caught.value.problem)
    assert "Every rank must make the same calls" in caught.value.why


def test_ranks_that_call_different_collectives_are_told_apart() -> None:
    def work(group: SimGroup) -> None:
        group.all_reduce(torch.ones(2)) if group.rank else group.all_gather(torch.ones(2))

    with pytest.raises(Mismatch, match="meet in different calls"):
        run_together(HERE, 2, work)


def test_writing_to_what_is_being_sent_is_noticed() -> None:
    def work(link: SimLink) -> None:
        x = torch.ones(2)
        transfer = link.send(x, 1) if link.rank == 0 else link.receive(x, 0)
        x += 1
        transfer.wait()

    assert "writes to what it" in failure(2, work)


def test_a_transfer_that_nobody_waits_for_is_noticed() -> None:
    def work(link: SimLink) -> None:
        transfer = link.send(torch.ones(1), 1) if link.rank == 0 else link.receive(torch.ones(1), 0)
        if link.rank:
            transfer.wait()

    assert "rank 0 has returned without waiting for a transfer: sending to rank 1" in failure(
        2, work
    )


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(2, dtype=torch.float64)])
def test_both_ends_must_have_tensors_of_one_size_and_dtype(other: Tensor) -> None:
    def work(link: SimLink) -> None:
        (link.send(torch.ones(2), 1) if link.rank == 0 else link.receive(other, 0)).wait()

    assert "rank 1 receives another tensor than rank 0 sends" in failure(2, work)


@pytest.mark.parametrize(
    ("tensor", "to", "said"),
    [
        (torch.ones(2, 2).t(), 1, "not contiguous"),
        (torch.ones(1), 0, "no such other rank"),
        (torch.ones(1), 2, "no such other rank"),
        ([1.0], 1, "not a tensor"),
    ],
)
def test_a_link_takes_contiguous_tensors_to_other_ranks(tensor: Any, to: int, said: str) -> None:
    assert said in failure(2, lambda link: link.send(tensor, to) if link.rank == 0 else None)


def test_an_endless_loop_is_named_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.kit.ranks.PATIENCE_SECONDS", 0.3)

    def work(link: SimLink) -> None:
        while link.rank:
            time.sleep(0.001)

    said = failure(2, work)
    assert "rank 1 was still running after 0.3 seconds" in said
    assert re.search(r"test_ranks\.py, line \d+\n +(while link\.rank|time\.sleep)", said)


def test_what_a_rank_raises_is_told_with_its_number() -> None:
    assert "rank 1 of 2 raises ZeroDivisionError" in failure(2, lambda link: 1 // (1 - link.rank))


def test_what_a_stub_raises_stays_as_it_is() -> None:
    words = "tensor_parallel task 20.2: not implemented yet; see chapter Tensor parallelism"

    def work(link: SimLink) -> None:
        raise NotImplementedError(words)

    with pytest.raises(NotImplementedError, match=r"task 20\.2"):
        run_on(HERE, 2, work)


def test_the_same_run_is_written_down_in_the_same_way() -> None:
    scripts = []
    for _ in range(3):
        run_on(
            tensor_parallel, 4, lambda link: tensor_parallel.Ring(link).all_reduce(torch.ones(7))
        )
        scripts.append(list(current_script().lines))
    assert scripts[0] == scripts[1] == scripts[2]
    assert len(scripts[0]) == 1 + 4 * 12


def stands_still(part: Any, link: Any) -> None:
    """A case: each rank waits for what the other one never sends."""
    part.Ring(link)._exchange(torch.ones(1), torch.ones(1)) if link.rank == 0 else time.sleep(60)


def test_real_ranks_that_stand_still_are_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.kit.rank_processes.PATIENCE_SECONDS", 1.0)
    submission = find_submission(load_curriculum()["tensor_parallel"], "solutions")
    load(submission)
    ranks = RankProcesses(submission, 2)
    try:
        with pytest.raises(Mismatch) as caught:
            ranks.run(2, stands_still)
        assert "2 real processes were still running after 1 seconds" in caught.value.problem
        assert re.search(
            r"rank 0: solutions/tensor_parallel/ring.py, line \d+", caught.value.problem
        )
        monkeypatch.setattr("grader.kit.rank_processes.PATIENCE_SECONDS", 30.0)
        first, second = ranks.run(2, real.reduced, 5, torch.float32)
        assert torch.equal(first, second), "the next case has new processes"
    finally:
        ranks.stop()
