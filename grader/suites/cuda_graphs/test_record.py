"""Task 17.4: recordings, and the memory they take."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

from torch import Tensor

from grader.kit import Mismatch, expect, expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import Bench, alone, lent
from grader.suites.cuda_graphs.machine import Machine
from grader.suites.cuda_graphs.pool import Pool
from grader.suites.cuda_graphs.rules import FIXED, WARM_UP
from grader.suites.cuda_graphs.still import StillDevice, StillStep
from grader.suites.cuda_graphs.waited import expect_no_wait
from solutions import cuda_graphs as reference
from yaie.core.contracts.graphs import Size

EACH_ONCE = "`forward` replays the first graph, `draw` the second, each once."
REPLAYED = (
    "Nothing of a capture runs: what a graph computes is there after a replay, at the addresses that "
    f"were recorded. {EACH_ONCE}"
)
IDLE = (
    "The step that warms up runs for real. On padding alone it draws for nobody; on what lies in the "
    "buffer it would draw a token too many for the seats that stand there."
)
ORDER = (
    "A pool is made of pieces that do not grow. A step that is smaller fits into what a larger one "
    "took and gave back; the other way round each size reserves memory of its own."
)
ONE_POOL = (
    "Only one recording runs at a time, so all of them may use the same memory: hand the pool that was "
    "given to every capture."
)
KEPT = (
    "A tensor that is kept keeps its memory: the pool cannot give it to the next recording. "
    "`device.alias` keeps the address alone, and no other recording runs until the step is over."
)
EARLY = (
    "What is dropped is given out again at once, also to the second capture: while that is recorded "
    "the hidden states must still be held, or its first results lie where they lie."
)
LAUNCHES = (
    "A replay launches all kernels with one call. What is computed beside it is launched one by one, "
    "which is what a graph is there to save."
)

ASCENDING = "The runner's sizes stay in ascending order: each step looks for its own in them."
RAISES = (
    "The engine tries a recording at start. If it raises, the engine says why, and launches steps as "
    "before: an error that is caught here leaves a size that nobody knows to be slow, or wrong."
)
WARM_STATES = "The states that the warm-up has computed are of no use: let them go, by name too."

DRAWS_AND_MORE = 512
"""Bytes that recordings of 8, 4, 2 and 1 rows may keep: half of the hidden states of the largest."""
ONE_GRAPH = (
    "Which rows of a step with chunks are sampled from differs from step to step, so its size has no "
    "draw: it has one graph."
)


def recorded(part: Any, bench: Bench, size: Size, pool: Pool) -> Any:
    note(f"Recording of a step of {tuple(size)} (decodes, tokens, chunks)")
    step = bench.padded(size)
    recording = part.Recording(step, bench.device, pool, bench.machine.nobody)
    expect(
        recording.inputs.data_ptr() == step.inputs.data_ptr(),
        "uploads go to `inputs` of the Recording, and `step.inputs` is another tensor by now",
        why=FIXED,
    )
    return recording


def expect_one_replay(device: Any, method: str) -> None:
    """Of the replays since they were cleared."""
    if len(device.replayed) != 1:
        problem = f"`{method}` replays {len(device.replayed)} graphs"
        shown = f"graphs {device.replayed}, counted in the order in which they were recorded"
        raise Mismatch(problem, "1 graph", shown if device.replayed else "none", EACH_ONCE)


def nothing_there(bench: Bench, got: Any, otherwise: str) -> str:
    """Why a result of a replay is wrong: that it is all 0 tells; otherwise another reason."""
    bench.settle()
    with bench.device.aside():
        is_zero = isinstance(got, Tensor) and not bool(got.any())
    return REPLAYED if is_zero else otherwise


def replay(bench: Bench, recording: Any, size: Size, *seats: int) -> None:
    step, n = bench.step(*seats), len(seats)
    hidden, drawn = bench.eager(step)
    bench.upload(recording, size, step)
    got = recording.forward()
    why = nothing_there(bench, got[:n], "")
    bench.expect_rows(got[:n], hidden, f"the hidden states of step {step.step}", why)
    tokens = recording.draw(got)[:n]
    why = nothing_there(bench, tokens, EARLY)
    bench.expect_rows(tokens, drawn, f"the draws of step {step.step}", why)


@task("17.4")
def test_warm_up(part: Any) -> None:
    """A step runs once before it is recorded, on padding alone: no seat moves."""
    bench = Bench()
    with bench.running() as device:
        step = bench.padded(Size(4))
        bench.upload(step, Size(4), bench.step(1, 2))
        bench.machine.entered = 0
        with device.aside():
            # What is left in the buffer may be a step of real seats, say of another size.
            device.idle_queue()
        note("the buffer still holds a step of seats 1 and 2")
        for machine in (bench.machine, bench.plain):
            machine.host_tables[:] = bench.machine.host_tables
        with device.aside():
            bench.plain.tables.copy_(bench.machine.tables)
        part.Recording(step, device, device.pool(), bench.machine.nobody)
        seen = {rows for _, rows in bench.machine.seen}
        expect(4 in seen, "the step has not run before it was recorded", why=WARM_UP)
        bench.expect_state(IDLE)


@task("17.4")
def test_replays(part: Any) -> None:
    """A recording gives for each upload what the step gives, and moves the seats on."""
    bench = Bench((1, 3, 4, 9))
    with bench.running() as device:
        recording = recorded(part, bench, Size(4), device.pool())
        for seats in ((0, 1), (3, 2, 1, 0), (2,), (0, 1), (0, 3, 1)):
            replay(bench, recording, Size(4), *seats)
        bench.expect_state(REPLAYED)


@task("17.4")
def test_a_replay_launches_nothing_else(part: Any) -> None:
    """A step is two replays, and no operation beside them."""
    bench = Bench()
    with bench.running() as device:
        recording = recorded(part, bench, Size(2), device.pool())
        bench.upload(recording, Size(2), bench.step(0, 1))
        launches, waits = device.launches, device.waits
        device.replayed.clear()
        got = recording.forward()
        expect_one_replay(device, "forward")
        device.replayed.clear()
        recording.draw(got)
        anew = "`draw` replays no graph: it computes its part of the step anew, kernel by kernel."
        why = LAUNCHES if device.replayed else anew
        expect_equal(device.launches - launches, 0, "launches beside replays", why=why)
        expect_one_replay(device, "draw")
        expect_no_wait(device.waited[waits:], "in a replay")


@task("17.4")
def test_states_last_until_they_are_drawn_from(part: Any) -> None:
    """The second graph draws from the hidden states that the first has left, unharmed."""
    bench = Bench()
    with bench.running() as device:
        pool = device.pool()
        recordings = {rows: recorded(part, bench, Size(rows), pool) for rows in (8, 4, 2, 1)}
        for size, seats in ((8, (0, 4, 2, 6, 1)), (2, (2, 5)), (1, (7,)), (4, (3, 1, 0))):
            step, n = bench.step(*seats), len(seats)
            _, drawn = bench.eager(step)
            bench.upload(recordings[size], Size(size), step)
            got = recordings[size].draw(recordings[size].forward())
            bench.expect_rows(got[:n], drawn, f"the draws of step {step.step}", EARLY)


@task("17.4")
def test_recordings_share_a_pool(part: Any) -> None:
    """Recordings of one pool take turns, each right; the smaller ones add little to the largest one."""
    bench = Bench()
    with bench.running() as device:
        pool, alone = device.pool(), device.pool()
        recordings, reserved = {}, 0
        for size in (8, 4, 2, 1):
            recordings[size] = recorded(part, bench, Size(size), pool)
            reserved = reserved or pool.reserved
        for graph in device.captured:
            expect(
                graph.pool is pool, "a capture does not use the pool that was given", why=ONE_POOL
            )
        reference.Recording(bench.padded(Size(8)), device, alone, bench.machine.nobody)
        right = alone.reserved + 4 * 64
        expect(
            pool.reserved <= right,
            f"the pool has {pool.reserved} bytes for sizes 8, 4, 2 and 1, where {right} are enough "
            f"({reserved} of them for size 8)",
            why=KEPT,
        )
        expect(
            pool.in_use <= DRAWS_AND_MORE,
            f"{pool.in_use} bytes of the pool are still in use when nothing runs, where the draws of "
            f"all sizes together take {8 * 15}",
            why=KEPT,
        )
        for size, seats in (
            (2, (0, 1)),
            (8, (0, 1, 2, 3, 4)),
            (1, (3,)),
            (4, (0, 3, 5)),
            (2, (5, 4)),
        ):
            replay(bench, recordings[size], Size(size), *seats)
        bench.expect_state(KEPT)


@task("17.4")
def test_the_largest_comes_first(part: Any) -> None:
    """`prepare` records each size once, the largest first, and says which is ready."""
    bench = Bench()
    with bench.running() as device, lent(part, "17.4 alone"):
        pool, sizes = device.pool(), alone(1, 2, 4, 8, 10)
        steps = part.GraphRunner(bench.machine, device, sizes, records=True, pool=pool)
        ready, counts = [], []
        for size in steps.prepare():
            note(f"ready: {size}, {pool.reserved} bytes")
            ready.append(size)
            counts.append(len(device.captured))
        expect_equal(ready, sizes[::-1], "the sizes in the order of `prepare`", why=ORDER)
        expect_equal(
            counts,
            [2, 4, 6, 8, 10],
            "graphs recorded when each size is ready",
            why="A size is told when it is ready: a bar shows how far the start has come.",
        )
        expect_equal(len(list(steps.prepare())), 5, "sizes of a second `prepare`")
        expect_equal(len(device.captured), 10, "graphs after it", why="Each size is recorded once.")
        rows = {rows for _, rows in bench.machine.seen}
        expect_equal(
            sorted(rows), [1, 2, 4, 8, 10], "numbers of rows that have run before", why=WARM_UP
        )
        expect_equal(list(steps.sizes), sizes, "`sizes` of the runner afterwards", why=ASCENDING)


@task("17.4")
def test_the_most_rows_come_first(part: Any) -> None:
    """With sizes for chunks too, `prepare` goes by the rows, the most of them first."""
    sizes = [Size(1), Size(0, 4, 2), Size(8), Size(4, 8, 2), Size(16), Size(0, 20, 9)]
    note(f"GraphRunner of sizes {[tuple(size) for size in sizes]}, not recorded")
    with lent(part, "17.4 alone"):
        runner = part.GraphRunner(Machine(), StillDevice(), sizes, records=False)
        for time in ("once", "once more"):
            ready = [tuple(size) for size in runner.prepare()]
            right = [tuple(size) for size in sizes[::-1]]
            expect_equal(ready, right, f"the sizes in the order of `prepare`, {time}", why=ORDER)
            what = "`sizes` of the runner afterwards"
            expect_equal(list(runner.sizes), sizes, what, why=ASCENDING)


class CannotBeRecordedError(RuntimeError):
    """What a step raises."""


@dataclass
class Unfit:
    """A method that raises in one call. num_calls: so far."""

    method: Callable[..., Any]
    times: int
    num_calls: int = 0

    def __call__(self, *args: Any) -> Any:
        self.num_calls += 1
        if self.num_calls == self.times:
            raise CannotBeRecordedError("it cannot be recorded")
        return self.method(*args)


@task("17.4")
def test_a_step_that_cannot_be_recorded(part: Any) -> None:
    """A Recording raises what its step raises, in the warm-up or in a capture."""
    for bad in ("forward", "draw"):
        for times in (1, 2):
            start_script()
            note(f"a step whose `{bad}` raises in call {times}")
            step = StillStep(Size(2), reference.num_uploaded(Size(2)))
            unfit = Unfit(getattr(step, bad), times)
            setattr(step, bad, unfit)
            raised = False
            try:
                part.Recording(step, StillDevice(), None, 12)
            except CannotBeRecordedError:
                raised = True
            problem = f"`{bad}` of the step raises, and Recording does not"
            expect(raised or unfit.num_calls < times, problem, why=RAISES)


@task("17.4")
def test_states_of_the_warm_up_go(part: Any) -> None:
    """Of the step that warms up nothing is kept: its memory is none of the pool's."""
    step, made = StillStep(Size(2), reference.num_uploaded(Size(2))), []
    forward = step.forward

    def noted() -> Tensor:
        hidden = forward()
        made.append(ref(hidden))
        return hidden

    step.forward = noted  # type: ignore[method-assign]
    note("a Recording of a step, whose states are watched")
    kept = part.Recording(step, StillDevice(), None, 12)
    gc.collect()
    alive = sum(one() is not None for one in made)
    problem = f"of {len(made)} tensors of states, made by `forward`, {alive} are still there"
    expect(alive <= 1, problem, why=WARM_STATES)
    del kept


@task("17.4")
def test_a_step_with_chunks_has_one_graph(part: Any) -> None:
    """A step with chunks is warmed up and recorded without a draw, in the same pool, and replays."""
    bench, size = Bench((1, 3)), Size(2, 8, 3)
    bench.begin(4, 15)
    with bench.running() as device:
        pool = device.pool()
        recording = recorded(part, bench, size, pool)
        expect_equal(len(device.captured), 1, "graphs that hold something", why=ONE_GRAPH)
        expect(
            device.captured[0].pool is pool, "it does not use the pool that was given", why=ONE_POOL
        )
        bench.expect_state(IDLE)
        small = recorded(part, bench, Size(2), pool)
        expect_equal(len(device.captured), 3, "graphs of both sizes", why=ONE_GRAPH)
        limit = DRAWS_AND_MORE // 2
        expect(pool.in_use <= limit, f"{pool.in_use} bytes of the pool are still in use", why=KEPT)
        for chunk in (5, 2, 8):
            step = bench.step(0, chunks={4: chunk})
            hidden, drawn = bench.eager(step)
            bench.upload(recording, size, step)
            before = (device.replays, device.launches)
            got = recording.forward()
            counts = (device.replays - before[0], device.launches - before[1])
            expect_equal(counts, (1, 0), "replays, and launches beside them", why=REPLAYED)
            bench.expect_rows(got[:1], hidden[:1], "the hidden state of the decode", REPLAYED)
            rows = got[size.decodes :][:chunk]
            expect_equal(
                len(rows),
                chunk,
                f"rows of the hidden states of a chunk of {chunk} tokens",
                why=f"A recording of {size.decodes} decodes and {size.tokens} tokens of chunks has "
                f"{size.decodes + size.tokens} rows, one for each. `forward` returned {len(got)}.",
            )
            bench.expect_rows(rows, hidden[1:], "the hidden states of the chunk", REPLAYED)
            expect_equal(bench.draw(step, hidden), drawn, "draws")
            replay(bench, small, Size(2), 1, 0)
        bench.expect_state(KEPT)
