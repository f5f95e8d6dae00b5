"""The processes of ranks: what they leave behind, what they say if they cannot start, how they end."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from tests.models.tiny import tiny_model
from tests.server.conftest import within
from yaie import LLMEngine
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, ModelError
from yaie.worker.parallel.executor import RankExecutor
from yaie.worker.parallel.messages import Go, Here

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
GONE_SECONDS = 15.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(autouse=True)
def _files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def ranks_here() -> list[psutil.Process]:
    """Those of this process that live. Other tests may have left it a zombie, which has no command."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "spawn_main" in " ".join(one.cmdline()):
                found.append(one)
    return found


def left(tmp_path: Path) -> dict[str, int]:
    """What an engine on ranks may leave behind."""
    me = psutil.Process()
    return {
        "processes": len(ranks_here()),
        "descriptors": me.num_fds(),
        "threads": sum(thread.name == "yaie-ranks" for thread in _threads()),
        "ports": sum(one.status == psutil.CONN_LISTEN for one in me.net_connections()),
        "files": len(list(tmp_path.glob("yaie-ranks-*"))),
        "shared memory": sum(f"_{me.pid}_" in file.name for file in Path("/dev/shm").iterdir()),
    }


def _threads() -> list:
    import threading

    return threading.enumerate()


def serve(folder: str) -> None:
    engine = LLMEngine(model=folder, tensor_parallel=2, num_blocks=32, mine="none")
    assert engine.generate([5, 6, 7], temperature=0.0, max_tokens=4)
    engine.close()


def stop_early(folder: str, phase: int) -> None:
    """Before a process is there, once it is, or once it would connect."""
    executor = RankExecutor(EngineConfig(model=folder, tensor_parallel=2))
    if phase:
        executor.send(Go())
    if phase == 2:
        executor._monitor.each(Here)
    executor.close()


@pytest.mark.nightly
def test_ten_starts_and_stops_leave_nothing(folder: str, tmp_path: Path) -> None:
    serve(folder)  # what is made once and kept
    before = left(tmp_path)
    for phase in (0, 1, 0, 2, 0, 1, 0, 1):
        stop_early(folder, phase)
    serve(folder)
    after = left(tmp_path)
    assert after == before
    assert (after["processes"], after["threads"], after["files"]) == (0, 0, 0)


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # a start takes 3.4 s on two cores
def test_two_hundred_starts_and_stops_leave_nothing(folder: str, tmp_path: Path) -> None:
    serve(folder)
    before = left(tmp_path)
    for _ in range(200):
        serve(folder)
    after = left(tmp_path)
    # What an earlier test had open may be closed meanwhile.
    assert {what: count for what, count in after.items() if count > before[what]} == {}


@pytest.mark.nightly
def test_what_a_rank_cannot_load_is_raised_here(folder: str, tmp_path: Path) -> None:
    """Rank 1 reads the second layer alone, and that is missing."""
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    broken.mkdir()
    for file in Path(folder).iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    stored = load_file(broken / "model.safetensors")
    stored = {name: tensor for name, tensor in stored.items() if ".layers.1." not in name}
    save_file(stored, broken / "model.safetensors")
    with pytest.raises(ModelError, match="9 missing"):
        LLMEngine(model=str(broken), pipeline_parallel=2, num_blocks=32, mine="none")
    assert left(tmp_path)["processes"] == 0


def test_a_lost_rank_ends_the_call_that_waits_and_every_later_one(folder: str) -> None:
    engine = LLMEngine(model=folder, tensor_parallel=2, num_blocks=32, mine="none")
    try:
        engine.add_request([5, 6, 7])
        engine.step()
        [rank] = ranks_here()
        rank.send_signal(signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(EngineDeadError, match="rank 1 was ended by SIGKILL"):
            engine.generate([5, 6, 7], max_tokens=400, ignore_eos=True)
        assert time.monotonic() - began < GONE_SECONDS
        with pytest.raises(EngineDeadError, match="rank 1 was ended by SIGKILL"):
            engine.step()
    finally:
        engine.close()


CALLER = """
import sys, time
from yaie import LLMEngine
if __name__ == "__main__":
    engine = LLMEngine(model=sys.argv[1], tensor_parallel=2, num_blocks=32, mine="none")
    print("ready", flush=True)
    {end}
"""


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["time.sleep(600)", "pass"])
def test_ranks_end_with_a_caller_that_is_killed_or_forgets_to_close(
    folder: str, tmp_path: Path, end: str
) -> None:
    script = tmp_path / "caller.py"
    script.write_text(CALLER.format(end=end))
    process = subprocess.Popen(
        [sys.executable, str(script), folder],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    ranks = psutil.Process(process.pid).children(recursive=True) if "sleep" in end else []
    if ranks:
        process.kill()
    assert process.wait(GONE_SECONDS) == (-signal.SIGKILL if ranks else 0)
    within(GONE_SECONDS, lambda: not any(one.is_running() for one in ranks))
