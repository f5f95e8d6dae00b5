"""What every test run has in common."""

import atexit
import gc
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.left_out import LeftOut

# Beside other workers (`pytest -n 2`), a test and what it starts use this worker's share of the cores.
# PyTorch reads the number when it is imported.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if WORKERS > 1:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // WORKERS)))


# An engine is watched and broken in the test's own process, or in that of the server that it starts.
os.environ.setdefault("YAIE_ENGINE_PROCESS", "0")

SLOW_WEIGHT = 20
"""A test marked `slow` takes about as long as this many others; `slow(times=4)` four times as long."""

# When a worker ends there is nothing to collect: it would look through all that was ever imported.
atexit.register(gc.freeze)

# A console that is made while this is set keeps that width; workers have it set.
os.environ.pop("COLUMNS", None)


def has_gpu() -> bool:
    """Asked only when there is a driver, or a test needs to know: importing torch takes seconds."""
    import torch

    return torch.cuda.is_available()


# Triton decides when a kernel is defined whether it will be compiled or interpreted.
DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version")
if not any(Path(driver).exists() for driver in DRIVERS) or not has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")


# No test's outcome depends on which examples are found, nor on how long one takes beside other programs.
# `pytest --hypothesis-profile=search` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Numbers drawn without a generator of their own are the same, whichever tests ran before."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in the background deaf to Ctrl-C, and children inherit that."""
    config.pluginmanager.register(LeftOut(), "left-out")
    config.option.randomly_reset_seed = False  # another order each time, but the same numbers
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: looking there for garbage, again and again, finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # what is deselected is gone by then
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu`, with the reason, where there is no CUDA GPU.

    Beside other workers, which take whole files, long files go first: none then runs alone at the end.
    """
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, and this machine has none"))
    if WORKERS > 1:
        weights = Counter[Path]()
        for item in items:
            slow = item.get_closest_marker("slow")
            weights[item.path] += SLOW_WEIGHT * slow.kwargs.get("times", 1) if slow else 1
        items.sort(key=lambda item: -weights[item.path])


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package `labs` that is found before the repository's own. `tests/learner.py` fills it."""

    def loaded() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] == "labs"]

    package = tmp_path / "labs"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    yield package
    for name in loaded():
        del sys.modules[name]
