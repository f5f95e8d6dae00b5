"""Beyond one call and a few sizes: results that stay, nothing left behind, a second step of a kind."""

from typing import Any

import numpy as np

from grader.kit import expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.kit.storage import expect_nothing_is_kept
from grader.suites.cuda_graphs.bench import Bench, alone, lent, memory_of
from grader.suites.cuda_graphs.loops import LoopBench
from grader.suites.cuda_graphs.machine import Machine
from grader.suites.cuda_graphs.still import StillDevice, StillEngine, StillStep
from grader.suites.cuda_graphs.test_choice import asked
from grader.suites.cuda_graphs.test_fill import step_of, told_of
from grader.suites.cuda_graphs.test_record import LAUNCHES, ORDER, recorded
from grader.suites.cuda_graphs.test_replay import WHOLE_TABLES, carry_out, runner_of
from grader.suites.cuda_graphs.waited import expect_no_wait
from solutions import cuda_graphs as reference
from yaie.core.contracts.graphs import Size

MANY = 1001
KNOWN_NOW = (
    "`num_known` changes from step to step: control sends prompts, and tokens that were drawn. Look it "
    "up for each step."
)
EVERY = "There may be as many sizes as a server is started with; the one that is needed may be the last."


@task("17.1")
def test_many_sizes(part: Any) -> None:
    """`size_for` looks through all sizes, and lists of sizes are made for their call."""
    sizes = alone(*range(1, MANY + 200))
    got = part.size_for(sizes, Size(MANY))
    what = f"size_for(sizes of 1 to {len(sizes)} decodes, {MANY} decodes)"
    expect_equal(got, Size(MANY), what, why=EVERY)
    largest = 8 * MANY
    right = [1, 2, 4, *range(8, largest + 1, 8)]
    expect_equal(part.padded_sizes(largest), right, f"padded_sizes({largest})", why=EVERY)
    expect_results_stand([lambda n=n: part.padded_sizes(n) for n in (4, 20, 9)], "padded_sizes")  # type: ignore[misc]
    few = sizes[:3]

    def call() -> None:
        part.padded_sizes(20)
        part.size_for(few, Size(2))

    start_script()
    expect_keeps_nothing(call, "padded_sizes and size_for")


@task("17.2")
def test_steps_leave_nothing_behind(part: Any) -> None:
    """Of a step that was written into a buffer nothing is kept."""
    size = Size(2, 4, 2)
    step = step_of([(4, 9, 1), (5, 0, 3)], [(5, 0, 8)])
    parts = reference.parts_of(np.zeros(reference.num_uploaded(size), np.int32), size)
    machine, one = told_of(step, 12), np.ones(1, np.int32)

    def call() -> None:
        part.fill(parts, size, step, machine)
        part.place(parts.slots, one, 1, 2, -1)

    expect_keeps_nothing(call, "fill and place")


@task("17.3")
def test_padded_steps_leave_nothing_behind(part: Any) -> None:
    """A padded step keeps nothing of the steps that it has computed."""
    machine, size = Machine(), Size(2, 4, 1)
    decodes, mixed = (part.PaddedStep(one, machine, memory_of(one)) for one in (Size(2), size))
    for padded, step in (
        (decodes, step_of([(4, 3, 1), (5, 2, 1)])),
        (mixed, step_of([(4, 3, 1), (5, 0, 3)])),
    ):
        parts = reference.parts_of(padded.inputs.numpy(), padded.size)
        reference.fill(parts, padded.size, step, machine)
    note(f"a PaddedStep of {Size(2)} and one of {size}")
    expect_nothing_is_kept(
        {
            "forward and draw": lambda: decodes.draw(decodes.forward()),
            "forward, with a chunk,": lambda: mixed.forward(),
        }
    )


@task("17.4")
def test_recordings_of_one_shape(part: Any) -> None:
    """Two recordings of one size each return the memory that they replay to, and copy nothing."""
    bench = Bench((1, 3, 4, 9))
    with bench.running() as device:
        pool = device.pool()
        first, second = (recorded(part, bench, Size(4), pool) for _ in range(2))
        for recording in (first, second, first):
            step = bench.step(0, 2)
            hidden, drawn = bench.eager(step)
            bench.upload(recording, Size(4), step)
            launches, waits = device.launches, device.waits
            got = recording.forward()
            tokens = recording.draw(got)
            what = "kernels launched beside the replays"
            expect_equal(device.launches - launches, 0, what, why=LAUNCHES)
            expect_no_wait(device.waited[waits:], "in a replay")
            bench.expect_rows(got[:2], hidden, f"the hidden states of step {step.step}", LAUNCHES)
            bench.expect_rows(tokens[:2], drawn, f"the draws of step {step.step}", LAUNCHES)
        bench.expect_state(LAUNCHES)


@task("17.4")
def test_replays_leave_nothing_behind(part: Any) -> None:
    """A recording is replayed as often as a server runs, and keeps nothing of it."""
    size = Size(2)
    step = StillStep(size, reference.num_uploaded(size))
    recording = part.Recording(step, StillDevice(), None, 12)

    def call() -> None:
        recording.draw(recording.forward())

    expect_nothing_is_kept({"forward and draw": call})


@task("17.4")
def test_every_size_is_made_ready(part: Any) -> None:
    """`prepare` makes all sizes ready, however many there are, and keeps nothing but them."""
    sizes = alone(*range(1, MANY + 1))
    note(f"GraphRunner of {MANY} sizes, not recorded")
    with lent(part, "17.4 alone"):
        runner = part.GraphRunner(Machine(), StillDevice(), sizes, records=False)
        ready = list(runner.prepare())
        what = "sizes that were made ready"
        expect_equal(len(ready), MANY, what, why=EVERY)
        expect_equal(ready[-1], Size(1), "the last of them", why=ORDER)
        few = part.GraphRunner(Machine(), StillDevice(), sizes[:2], records=False)
        start_script()
        expect_keeps_nothing(lambda: list(few.prepare()), "prepare of what is ready")


@task("17.5")
def test_each_step_is_sized_by_itself(part: Any) -> None:
    """Whether there is a size for a step does not depend on the steps before."""
    bench = Bench((4, 1, 6))
    with bench.running(), lent(part, "17.5"):
        sizes = [Size(2, 2, 1)]
        note("GraphRunner of sizes [(2, 2, 1)] (decodes, tokens, chunks), not recorded")
        runner = part.GraphRunner(bench.machine, bench.device, sizes, records=False)
        answers = []
        for count in (1, 3, 2):
            step = asked(bench, [0, 1, 2][:count], starts=np.zeros(count, np.int32))
            answers.append(bool(runner.takes(step)))
            told = f"a step of {count} seats, 1 token each, that control has sent"
            note(f"takes({told})  # -> {answers[-1]}")
        what = "takes(step) for steps of 1, 3 and 2 seats, of at most 2"
        expect_equal(answers, [True, False, True], what)


@task("17.5")
def test_what_control_has_sent_is_looked_up_each_time(part: Any) -> None:
    """A step takes its size by what control has sent by then."""
    bench = Bench((4, 4))
    with bench.running(), lent(part, "17.5"):
        note("GraphRunner of sizes [(2, 0, 0)] (decodes, tokens, chunks), not recorded")
        runner = part.GraphRunner(bench.machine, bench.device, alone(2), records=False)
        for known in (4, 7, 5, 8):
            bench.machine.num_known[:2] = known
            step = asked(bench, [0, 1], starts=np.full(2, 5, np.int32))
            got, told = bool(runner.takes(step)), f"control has sent {known} tokens of each seat"
            note(f"takes(a step of seats 0 and 1 from position 5 on), {told}  # -> {got}")
            what = f"takes(a step from position 5 on) when {told}"
            expect_equal(got, known <= 5, what, why=KNOWN_NOW)


@task("17.5")
def test_whole_tables_again(part: Any) -> None:
    """A second request that comes back brings its own table, in a step of its own."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, alone(1, 2))
        for seats, back in (((0, 1), 9), ((2, 3), 8), ((4,), 7)):
            entries = [(back, column, 40 + 3 * (9 - back) + column) for column in range(3)]
            carry_out(bench, runner, *seats, entries=entries, why=WHOLE_TABLES)
        expect_equal(bench.machine.entered, 3, "calls of extend_tables", why=WHOLE_TABLES)
        bench.expect_state(WHOLE_TABLES)


@task("17.5")
def test_steps_of_many_calls_leave_nothing_behind(part: Any) -> None:
    """A runner keeps nothing of the steps that it has carried out."""
    machine = Machine()
    with lent(part, "17.5"):
        runner = part.GraphRunner(machine, StillDevice(), alone(2, 4), records=False)
        step = step_of([(0, 1, 1), (1, 1, 1)])

        def call() -> None:
            if runner.takes(step) and runner.draws(step):
                runner.forward(step)
                runner.draw(2)

        expect_nothing_is_kept({"takes, draws, forward and draw": call})


@task("17.7")
def test_outputs_of_many_steps(part: Any) -> None:
    """The outputs of a step are no list that the next one fills."""
    bench = LoopBench(part)
    for prompt in ([1, 2, 0], [0, 1], [4, 4, 2]):
        bench.say(prompt, 6)
    expect_results_stand([bench.step] * 6, "step")


@task("17.7")
def test_steps_leave_nothing_behind_in_the_loop(part: Any) -> None:
    """Of a step that was taken over the loop keeps nothing."""
    engine = StillEngine()
    loop = part.OverlappedLoop(engine, engine, engine)

    def call() -> None:
        loop.step()
        bool(loop.has_work)

    expect_keeps_nothing(call, "step and has_work")
