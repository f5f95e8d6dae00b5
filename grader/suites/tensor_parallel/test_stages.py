"""Task 20.9: microbatches through the stages of a pipeline."""

import math
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect, expect_close, expect_equal, note, start_script, task
from grader.kit.rank_links import SimLink, run_on
from grader.kit.rank_processes import RankProcesses
from grader.kit.ranks import Ranks
from grader.suites.tensor_parallel import real
from grader.suites.tensor_parallel.bench import drawn
from grader.suites.tensor_parallel.clock import Deed, steps_of

LAST_ONE = (
    "Results leave the pipeline at its end: only the last stage returns them, one a microbatch."
)
ASKED = (
    "While a stage computes, the next input can be on its way, but only into a tensor that is there for "
    "it: ask for it before computing."
)
ON_ITS_WAY = (
    "A stage that waits until its result has been received stands idle while the next stage computes. "
    "Wait at the end, or before the next send."
)
OF_ITS_OWN = (
    "Each input has memory of its own, from `empty`: a result may be the tensor that was received, and "
    "is still on its way, or kept by the last stage, when the next inputs arrive."
)
ARRIVED = (
    "What is received may be read when `wait` has returned; until then anything may stand there."
)

OVERLAPPED = (
    "A stage that does nothing while a tensor is on its way takes two steps or more for a microbatch: "
    "the next input and the last result can be on their way while it computes."
)


def staged(
    part: ModuleType, size: int, num_tokens: list[int], order: tuple[int, ...] = ()
) -> tuple[list[list[Tensor]], Ranks]:
    """What each stage's run returns. A stage multiplies by 10 and adds its number; its log has what it
    computed, and on what."""

    def work(link: SimLink) -> list[Tensor]:
        made: list[Tensor] = []

        def compute(index: int, given: Tensor | None) -> Tensor:
            shown = "without input" if given is None else f"on {given.flatten().tolist()}"
            note(f"rank {link.rank} computes microbatch {index} {shown}")
            link.ranks.log[link.rank].append(("compute", index))
            if given is None:
                expect(
                    link.rank == 0, f"stage {link.rank} computes on None: that is the first one's"
                )
                given = torch.full((num_tokens[index], 1), 1.0 + index)
            else:
                expect(link.rank > 0, "the first stage gets something from a stage before it")
            shape, right = list(given.shape), [num_tokens[index], 1]
            what = f"shape of the input of microbatch {index}"
            expect_equal(shape, right, what, why=why_shape(given, made, index))
            return given * 10 + link.rank

        def empty(tokens: int) -> Tensor:
            made.append(torch.empty(tokens, 1))
            return made[-1]

        note(f"rank {link.rank} calls run({num_tokens}, compute, empty)")
        results: list[Tensor] = part.Pipeline(link).run(num_tokens, compute, empty)
        return results

    return run_on(part, size, work, order)


def why_shape(given: Tensor, made: list[Tensor], index: int) -> str:
    """Whether an input is the tensor that `empty` has made for another microbatch. made: all of them, in
    order."""
    number = next((at for at, one in enumerate(made) if one is given), index)
    other = f"This is tensor {number} of those that `empty` has made, counted from 0"
    return f"{other}: the input of microbatch {number} belongs there." if number != index else ""


def expect_results(
    got: list[list[Tensor]], size: int, num_tokens: list[int], computed: list[list[int]]
) -> None:
    """computed: the microbatches of each stage, in order."""
    for stage, results in enumerate(got[:-1]):
        what = f"number of results that stage {stage} of {size} returns"
        expect_equal(len(results), 0, what, why=LAST_ONE)
    expected = []
    for index, tokens in enumerate(num_tokens):
        value = 1.0 + index
        for stage in range(size):
            value = value * 10 + stage
        expected.append([value] * tokens)
    values = [x.flatten().tolist() for x in got[-1]]
    what = f"results of the last of {size} stages, for microbatches of {num_tokens} tokens"
    if values == expected:
        return
    if computed[-1] != list(range(len(num_tokens))):
        what += f", of which it has computed {computed[-1] or 'none'}"
        expect_equal(values, expected, what)
    is_nonsense = any(math.isnan(number) for value in values for number in value)
    is_of_others = len(values) == len(expected) and all(value in expected for value in values)
    why = ARRIVED if is_nonsense or is_of_others else ""
    if len(values) < len(expected):
        last = " Here only the last one is there." if values == expected[-1:] else ""
        why = f"The last stage returns a result for each microbatch.{last}"
    expect_equal(values, expected, what, why=why)


def why_idle(logs: list[list[Deed]], count: int) -> str:
    """What the stages of a run have waited for, if their logs tell."""
    asked_late = [
        stage
        for stage, log in enumerate(logs[1:], 1)
        for index in range(count)
        if sum(deed == "receive" for deed, _ in log[: log.index(("compute", index))])
        < min(index + 2, count)
    ]
    sent_first = [
        stage
        for stage, log in enumerate(logs[:-1])
        for index in range(count - 1)
        if log.index(("sent", index)) < log.index(("compute", index + 1))
    ]
    if asked_late and not sent_first:
        return f"Stage {asked_late[0]} computes before it has asked for its next input. {ASKED}"
    if sent_first and not asked_late:
        return f"Stage {sent_first[0]} waits for its send before it computes again. {ON_ITS_WAY}"
    return OVERLAPPED


@task("20.9")
def test_microbatches_pass_through_all_stages(part: ModuleType) -> None:
    """run passes every microbatch through every stage, in order; the last stage returns the results, and
    the others nothing."""
    for size in (1, 2, 3, 4):
        for num_tokens in ([2], [1, 3, 2], [2, 2, 2, 2, 1], []):
            for order in (tuple(range(size)), tuple(range(size))[::-1]):
                got, ranks = staged(part, size, num_tokens, order)
                computed = [
                    [index for what, index in log if what == "compute"] for log in ranks.log
                ]
                expect_results(got, size, num_tokens, computed)
                for stage, indices in enumerate(computed):
                    what = f"microbatches that stage {stage} of {size} computed"
                    expect_equal(indices, list(range(len(num_tokens))), what)


@task("20.9")
def test_a_stage_that_gives_what_it_was_given(part: ModuleType) -> None:
    """A stage may have no layers: its result is then the tensor that it received."""
    for size in (2, 3, 4):
        for num_tokens in ([2, 2, 2, 1, 2, 2], [1] * 6):
            got, _ = run_on(part, size, partial(pass_on, part, num_tokens))
            values = [x.flatten().tolist() for x in got[-1]]
            right = [[1.0 + index] * tokens for index, tokens in enumerate(num_tokens)]
            what = f"results of the last of {size} stages; all but the first pass on their input"
            expect_equal(values, right, what, why=OF_ITS_OWN)


def pass_on(part: ModuleType, num_tokens: list[int], link: SimLink) -> list[Tensor]:
    """Run a stage that has no layers."""

    def compute(index: int, given: Tensor | None) -> Tensor:
        return torch.full((num_tokens[index], 1), 1.0 + index) if given is None else given

    def empty(tokens: int) -> Tensor:
        return torch.empty(tokens, 1)

    note(f"rank {link.rank} calls run({num_tokens}), of which compute gives its input")
    results: list[Tensor] = part.Pipeline(link).run(num_tokens, compute, empty)
    return results


@task("20.9")
def test_stages_work_at_the_same_time(part: ModuleType) -> None:
    """The last of S stages has computed n microbatches after n + 2 (S - 1) steps; each is sent once."""
    for size, num_tokens in ((1, [2, 1]), (2, [1] * 6), (3, [1, 2, 1, 3, 2, 2]), (4, [2] * 9)):
        _, ranks = staged(part, size, num_tokens)
        numbers = [sum(num_tokens)] * (size - 1) + [0]
        for stage, (got, right) in enumerate(zip(ranks.sent, numbers, strict=True)):
            what = f"stage {stage} of {size} sends {got // 4} numbers for {sum(num_tokens)} tokens"
            expect(got == 4 * right, f"{what} of one number; {right} are promised")
        count, promised = len(num_tokens), len(num_tokens) + 2 * (size - 1)
        what = f"stage {size} of {size} has computed {count} microbatches"
        took = steps_of(ranks.log)
        idle = why_idle(ranks.log, count) if took > promised else ""
        expect(took <= promised, f"{what} after {took} steps; {promised} are promised", why=idle)


@task("20.9")
def test_real_stages_pass_on(part: ModuleType, processes: RankProcesses) -> None:
    """Two and four real processes over gloo pass microbatches on, small and large."""
    for size in (2, 4):
        for num_tokens, width in (([3, 1, 2], 4), ([90, 120, 100, 80, 110], 300)):
            start_script()
            note(f"# {size} processes: microbatches of {num_tokens} tokens, {width} numbers each")
            got = processes.run(size, real.staged, num_tokens, width)
            expect_equal(
                [len(x) for x in got[:-1]], [0] * (size - 1), "results of the first stages"
            )
            for index, x in enumerate(got[-1]):
                expected = drawn(num_tokens[index], width, seed=index)
                for stage in range(size):
                    expected = expected * 2 + stage
                what = f"microbatch {index} of the last of {size} real stages"
                expect_close(x, expected, what, rtol=0, atol=0, why=ARRIVED)
            expect_equal(len(got[-1]), len(num_tokens), "results of the last stage", why=LAST_ONE)
