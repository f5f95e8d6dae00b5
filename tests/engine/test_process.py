"""AsyncEngine on an engine in a process of its own: what a caller notices of it, which is little."""

import asyncio
import os
import pickle
import signal
import time
from collections.abc import Iterator

import pytest

from tests.engine.scripted import child_of, make, scripted
from tests.engine.test_async_engine import LONG, text_of, until
from yaie.core.compat import Runner
from yaie.core.constraint import Constraint
from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FailureKind, FinishReason
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_child import SNAPSHOT_SECONDS
from yaie.engine.background.messages import Stepped

pytestmark = pytest.mark.usefixtures("fake_tokenizer")


@pytest.fixture(scope="module")
def shared(fake_tokenizer: None) -> Iterator[tuple[Runner, AsyncEngine]]:
    """One engine for tests that leave it whole, and what runs them on its event loop."""
    with Runner() as runner:
        engine = make(scripted)
        runner.run(engine.start())
        yield runner, engine
        runner.run(engine.shutdown())


Shared = tuple[Runner, AsyncEngine]


def test_the_engine_runs_in_another_process(shared: Shared) -> None:
    _, engine = shared
    assert child_of(engine).ppid() == os.getpid()
    assert engine.info.model_name == "fake"
    assert engine.tokenizer.encode("a") == [97]


def test_many_streams_join_to_their_answers(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> list[str]:
        streams = await asyncio.gather(*(engine.submit(f"prompt {i}") for i in range(50)))
        return await asyncio.gather(*(text_of(stream) for stream in streams))

    assert runner.run(ask()) == [f"prompt {i}"[::-1] for i in range(50)]


def test_outputs_of_n_choices_are_told_apart(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> list[str]:
        stream = await engine.submit("abcdef", SamplingParams(n=3))
        texts = dict.fromkeys((request.request_id for request in stream.requests), "")
        async for output in stream:
            texts[output.request_id] += output.text
        assert [request.index for request in stream.requests] == [0, 1, 2]
        return list(texts.values())

    assert runner.run(ask()) == ["fedcba"] * 3


def test_a_closed_stream_is_aborted_there(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> None:
        stream = await engine.submit(LONG)
        await anext(stream)
        await stream.aclose()
        assert (await engine.stats())["num_running"] == 0

    runner.run(ask())


def test_errors_keep_their_type_message_and_parameter(shared: Shared) -> None:
    runner, engine = shared
    with pytest.raises(InvalidRequestError, match="the prompt is empty") as refused:
        runner.run(engine.submit(""))
    assert refused.value.param == "prompt"
    with pytest.raises(ContextLengthError):
        runner.run(engine.submit("x" * 2000))
    with pytest.raises(InvalidRequestError) as refused:
        runner.run(engine.call("refuse"))
    assert refused.value.param == "messages[0].role"
    assert engine.num_streams == 0


def test_an_error_of_another_kind_says_what_it_was(shared: Shared) -> None:
    runner, engine = shared
    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero"):
        runner.run(engine.call("divide"))


def test_a_grammar_is_checked_there(shared: Shared) -> None:
    runner, engine = shared
    params = SamplingParams(constraint=Constraint("lark", "begin: /a/"))
    with pytest.raises(InvalidRequestError, match="no start"):
        runner.run(engine.submit("abc", params))


def test_telemetry_arrives_while_it_works_and_after(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> None:
        await asyncio.sleep(2 * SNAPSHOT_SECONDS)  # for what the last test left
        finished = engine.telemetry.finished[FinishReason.STOP]
        stream = await engine.submit(LONG)
        await until(lambda: engine.telemetry.stats["num_running"] == 1)
        await text_of(stream)
        await until(lambda: engine.telemetry.stats["num_running"] == 0)
        await until(lambda: engine.telemetry.finished[FinishReason.STOP] == finished + 1)

    runner.run(asyncio.wait_for(ask(), 20))


def test_an_idle_process_sends_nothing(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> None:
        await text_of(await engine.submit("abc"))
        await asyncio.sleep(2 * SNAPSHOT_SECONDS)
        latest = engine.telemetry
        await asyncio.sleep(2 * SNAPSHOT_SECONDS)
        assert engine.telemetry is latest

    runner.run(ask())


def test_signals_are_left_to_the_parent(shared: Shared) -> None:
    runner, engine = shared
    for number in (signal.SIGINT, signal.SIGTERM):
        child_of(engine).send_signal(number)
    assert runner.run(text_of(runner.run(engine.submit("abc")))) == "cba"


def test_a_stopped_process_does_not_hold_up_the_event_loop(shared: Shared) -> None:
    runner, engine = shared

    async def ask() -> None:
        child_of(engine).suspend()
        begin = time.monotonic()
        asking = [asyncio.create_task(engine.submit([5] * 900)) for _ in range(200)]
        await asyncio.sleep(0.05)  # more than a pipe holds
        assert time.monotonic() - begin < 10
        child_of(engine).resume()
        for stream in await asyncio.gather(*asking):
            await stream.aclose()

    runner.run(ask())


def test_a_step_is_the_same_after_its_way_through_a_pipe() -> None:
    outputs = [
        RequestOutput(
            "a", "text", [5, 6], logprobs=[TokenLogprob(5, -0.5, ((5, -0.5), (7, -1.0)))]
        ),
        RequestOutput("b", "", [], FinishReason.ERROR, error="why", failure=FailureKind.PART),
    ]
    step = Stepped(outputs, ["a"])
    assert pickle.loads(pickle.dumps(step, pickle.HIGHEST_PROTOCOL)) == step
