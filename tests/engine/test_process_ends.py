"""How an engine in a process of its own ends: it fails, hangs, is killed, or loses its parent."""

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.engine.scripted import (
    break_while_loading,
    child_of,
    log_to,
    make,
    refuse_to_load,
    run,
    scripted,
    started,
)
from tests.engine.test_async_engine import LONG, text_of
from yaie.core.errors import EngineDeadError, ModelError
from yaie.engine.background.engine_life import EngineState

pytestmark = pytest.mark.usefixtures("fake_tokenizer")
ROOT = Path(__file__).parents[2]


def test_what_loading_raises_reaches_the_starter() -> None:
    async def test() -> None:
        engine = make(refuse_to_load)
        with pytest.raises(ModelError, match="no such model") as refused:
            await engine.start()
        assert refused.value.param == "model"
        assert engine.state is EngineState.DEAD
        await engine.wait_ended()
        await engine.shutdown()
        assert not engine.is_stuck

    run(test())


def test_a_loader_that_breaks_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        engine = make(break_while_loading, prepare=partial(log_to, str(log)))
        with pytest.raises(RuntimeError, match="ZeroDivisionError: in the loader"):
            await engine.start()
        await engine.shutdown()

    run(test())
    assert "ERROR the engine could not be loaded" in log.read_text()
    assert "in break_while_loading" in log.read_text()


def test_a_failing_step_ends_every_request_and_the_process(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        load = partial(scripted, step_seconds=0.01)
        async with started(load, prepare=partial(log_to, str(log))) as engine:
            stream = await engine.submit(LONG)
            await engine.call("break_down")
            with pytest.raises(EngineDeadError):
                await text_of(stream)
            assert engine.state is EngineState.DEAD
            assert str(engine.failure) == "RuntimeError: boom"
            await engine.wait_ended()

    run(test())
    assert "RuntimeError: boom" in log.read_text()
    assert "Traceback" in log.read_text()


def test_a_hung_step_is_noticed_there_and_the_process_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        engine = make(scripted, step_timeout=0.3, prepare=partial(log_to, str(log)))
        await engine.start()
        child = child_of(engine)
        await engine.call("pause_after", 3)
        with pytest.raises(EngineDeadError):
            await text_of(await engine.submit(LONG))
        await engine.wait_ended()
        assert not child.is_running()
        await engine.shutdown()
        assert not engine.is_stuck

    run(test())
    assert "a step has not ended within 0.3 seconds" in log.read_text()
    assert "self.gate.wait()" in log.read_text()


def test_a_killed_process_is_noticed_within_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        engine = make(scripted)
        await engine.start()
        await engine.call("close_gate")
        running = await engine.submit(LONG)
        asking = asyncio.create_task(engine.stats())
        await asyncio.sleep(0)
        begin = time.monotonic()
        child_of(engine).kill()
        with pytest.raises(EngineDeadError):
            await text_of(running)
        with pytest.raises(EngineDeadError):
            await asking
        assert time.monotonic() - begin < 20
        with pytest.raises(EngineDeadError):
            await engine.submit("abc")
        assert engine.state is EngineState.DEAD
        await engine.wait_ended()
        await engine.shutdown()

    run(test())
    assert "was ended by SIGKILL" in caplog.text


def test_shutdown_lets_what_runs_finish() -> None:
    async def test() -> None:
        async with started(partial(scripted, step_seconds=0.002)) as engine:
            stream = await engine.submit("x" * 100)
            draining = asyncio.create_task(engine.shutdown(20))
            assert await text_of(stream) == "x" * 100
            await draining

    run(test())


def test_shutdown_does_not_wait_for_a_model_that_loads() -> None:
    async def test() -> None:
        engine = make(partial(time.sleep, 60))
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0)
        child = child_of(engine)
        await engine.shutdown()
        starting.cancel()
        assert not child.is_running()
        assert not engine.is_stuck

    run(test())


ORPHAN = """
import asyncio
from functools import partial
from tests.engine.scripted import child_of, make, scripted
from tests.server.fake_engine import FakeTokenizer
from yaie.models.tokenizer import Tokenizer

Tokenizer.load = lambda folder, model_type="": FakeTokenizer()

async def main():
    engine = make(scripted)
    await engine.start()
    {work}
    print(child_of(engine).pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("work", ["", "await engine.call('close_gate'); await engine.submit('a')"])
def test_the_process_ends_with_its_parent(work: str) -> None:
    """Idle, and in the middle of a step."""
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN.format(work=work)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait(10)
    psutil.wait_procs([child], timeout=5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_engines_process_leaves_signals_to_its_parent_and_holds_none_back() -> None:
    program = (
        "import signal; from yaie.system.child import leave_signals_to_parent as f\n"
        "both = {signal.SIGINT, signal.SIGTERM}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, both)\n"
        "f()\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & both\n"
        "for number in both: signal.raise_signal(number)\n"
        "print('alive')"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (ran.stdout, ran.stderr) == ("alive\n", "")
