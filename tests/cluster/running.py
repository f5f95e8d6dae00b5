"""`yaie cluster` as a process, on the Ray that `install.py` has put aside."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.cluster.install import python_with_ray
from tests.judges.programs import ROOT, Running, started

START_SECONDS = 300
"""Ray's own processes, its Serve, and two replicas that load PyTorch at the same time."""
ENGINES = "ServeReplica:yaie:Engines"
RAYS_FOLDER = "RAY_TMPDIR"
"""The variable that says where Ray has its files."""


def command(*options: str) -> list[str]:
    """That starts `yaie cluster` with these options, or skips the test where there is no Ray."""
    if not python_with_ray().exists():
        pytest.skip("Ray is not installed: python -m tests.cluster.install")
    main = "from yaie.cli.main import main; main()"
    fixed = ("--mine=none", "--threads=1", "--cpus-per-replica=0.5")
    return [str(python_with_ray()), "-c", main, "cluster", *fixed, *options]


@contextmanager
def cluster(model: str, *options: str) -> Iterator[tuple[Running, str]]:
    """One that is ready; the process and its URL. Whatever happens, nothing of it is left: neither a
    process nor one of Ray's files."""
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    # A dozen processes import the same modules: the first one to do so may write down what it compiled.
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    # Short: Ray makes sockets below it.
    with tempfile.TemporaryDirectory(prefix="yaie-", ignore_cleanup_errors=True) as folder:
        environment[RAYS_FOLDER] = folder
        try:
            with started(command(model, "--port=0", *options), **environment) as running:
                yield running, ready(running)
        finally:
            left = of_folder(folder)
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=10)


def of_folder(folder: str) -> list[psutil.Process]:
    """The processes of the Ray that has its files there, also those whose parent is gone.

    Some of them show their name where their environment was; those have a log open.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            logs = (file.path for file in process.open_files())
            if process.environ().get(RAYS_FOLDER) == folder or any(
                path.startswith(folder) for path in logs
            ):
                found.append(process)
    return found


def ready(running: Running) -> str:
    """The URL, once it serves. Fails with what it printed if it ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not (found := re.search(r"Serving at (\S+)/v1", running.text)):
        assert running.process.poll() is None, running.text
        assert time.monotonic() < deadline, running.text
        time.sleep(0.1)
    return found[1]


def children(running: Running) -> list[psutil.Process]:
    """All processes below it."""
    try:
        return psutil.Process(running.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes: list[psutil.Process]) -> list[str]:
    """The names of those that still run."""
    names = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                names.append(process.name())
        except psutil.NoSuchProcess:
            pass
    return names


def replicas(running: Running) -> list[psutil.Process]:
    """The processes with an engine."""
    found = []
    for process in children(running):
        try:
            if ENGINES in (process.cmdline() or [""])[0]:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return sorted(found, key=lambda process: process.pid)


def interrupt(running: Running, number: int) -> None:
    """Send a signal to the command, and not to what it has started."""
    os.kill(running.process.pid, number)
