"""Other people's programs and replicas of `yaie serve`, as processes."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.judges.clients.install import python_of

ROOT = Path(__file__).parents[2]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
# A proxy of the environment is not for this machine's own ports.
DIRECT = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
READY_SECONDS = 90


def installed(name: str) -> str:
    """The path of a program: in a folder of YAIE_JUDGES (separated as in PATH), or in `.judges/judges`,
    an environment of their own: their pins may contradict ours.
    """
    folders = [os.environ.get("YAIE_JUDGES", ""), str(python_of("judges").parent)]
    found = shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))
    if found is None:
        pytest.skip(f"{name} is not installed: python -m tests.judges.clients.install judges")
    return found


def free_port() -> int:
    """One that nobody holds now. A program that cannot bind 0 and say what it got needs one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass
class Running:
    """A process and what it has printed."""

    process: subprocess.Popen[str]
    lines: list[str]

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(10)


@contextmanager
def started(command: Sequence[str], **environment: str) -> Iterator[Running]:
    """A process that ends with the block, whatever it wants."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **OFFLINE, **ONE_THREAD, **DIRECT, **environment},
    )
    running = Running(process, [])
    assert process.stdout is not None
    reader = threading.Thread(target=running.lines.extend, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        yield running
    finally:
        running.kill()
        reader.join(10)


def wait_until_ready(running: Running, url: str) -> None:
    """Until GET `url` answers 200. Fails with what the process printed if it ends or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        assert running.process.poll() is None, running.text
        assert time.monotonic() < deadline, f"{url} did not answer\n{running.text}"
        try:
            if httpx.get(url, timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)


@contextmanager
def replica(model: Path, *options: str, port: int = 0) -> Iterator[tuple[Running, str]]:
    """`yaie serve` on the reference parts, ready; the process and its URL."""
    main = "from yaie.cli.main import main; main()"
    command = [
        sys.executable, "-c", main, "serve", str(model), f"--port={port}", "--mine=none",
        "--threads=1", *options,
    ]  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with started(command, **environment) as running:
        deadline = time.monotonic() + READY_SECONDS
        while not (found := re.search(r"Serving at (\S+)/v1", running.text)):
            assert running.process.poll() is None, running.text
            assert time.monotonic() < deadline, running.text
            time.sleep(0.05)
        yield running, found[1]
