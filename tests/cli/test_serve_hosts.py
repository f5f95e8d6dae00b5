"""`yaie serve` started by torchrun on two hosts, both of which are this one: tokens, ends, refusals."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.test_serve import ROOT, address_in
from tests.cli.test_serve_ranks import GONE_SECONDS, begin, is_there
from tests.server.conftest import within
from yaie import LLMEngine
from yaie.server.listen import listen

pytestmark = pytest.mark.slow
SECRET = "known to both hosts of a test"
PROMPTS = ["hello", "What is a paged KV cache?", "a b c d e f g h"]
START_SECONDS = 90.0
SMALL = ("--num-blocks=64", "--mine=none", "--rank-timeout=60")


@dataclass
class Host:
    """A launcher on one host. lines: what it and the ranks it started have printed."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(
            target=lambda pipe: self.lines.extend(pipe), args=(self.process.stdout,)
        )
        self.reader.start()

    def ranks(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def said(self) -> str:
        return "".join(self.lines)

    def end(self) -> None:
        family = self.ranks() if self.process.poll() is None else []
        for one in [*family, self.process]:
            one.kill()
        self.process.wait()
        self.reader.join(10)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(command: list[str], **variables: object) -> Host:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200",
               "YAIE_RANK_SECRET": SECRET,
               **{name: str(value) for name, value in variables.items()}}  # fmt: skip
    return Host(
        subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            cwd=ROOT,
        )
    )


def torchrun(node: int, port: int, *args: str, processes: int = 1) -> Host:
    """The launcher on one of two hosts. port: where they meet."""
    return started(
        ["-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}",
         f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", f"--master-port={port}",
         "-m", "yaie", "serve", *args, "--port=0", *SMALL]
    )  # fmt: skip


def by_hand(rank: int, port: int, *args: str, size: int = 2) -> Host:
    """One process of two, with the variables that a launcher sets."""
    return started(
        ["-m", "yaie", "serve", *args],
        RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
    )  # fmt: skip


@contextmanager
def two(first: Host, second: Host) -> Iterator[tuple[Host, Host]]:
    family: list[psutil.Process] = []
    try:
        yield first, second
    finally:
        for host in (first, second):
            family += host.ranks() if host.process.poll() is None else []
            host.end()
    within(GONE_SECONDS, lambda: not any(is_there(one) for one in family))


def greedy(url: str, prompt: str) -> str:
    asked = {"prompt": prompt, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    answer = httpx.post(f"{url}/v1/completions", json=asked, timeout=60)
    return str(answer.raise_for_status().json()["choices"][0]["text"])


def one_rank(folder: str) -> list[str]:
    engine = LLMEngine(model=folder, num_blocks=64, mine="none")
    try:
        return engine.generate(PROMPTS, temperature=0.0, max_tokens=24, ignore_eos=True)
    finally:
        engine.close()


def expect_ends(
    hosts: tuple[Host, Host], code: int | None = None, seconds: float = GONE_SECONDS
) -> None:
    """Both end by themselves, in time, and not as if all had been well."""
    deadline = time.monotonic() + seconds
    for host in hosts:
        ended = host.process.wait(max(0.1, deadline - time.monotonic()))
        assert ended == code if code is not None else ended != 0, host.said()
        host.reader.join(10)


@pytest.mark.nightly
def test_two_hosts_give_the_tokens_of_one_rank_and_end_when_one_dies(tiny_folder: str) -> None:
    port = free_port()
    args = (tiny_folder, "--pipeline-parallel=2", "--no-engine-process")
    with two(torchrun(0, port, *args), torchrun(1, port, *args)) as (first, second):
        url = address_in(first.process, first.lines)
        assert [greedy(url, prompt) for prompt in PROMPTS] == one_rank(tiny_folder)
        answers: list[str] = []
        thread = begin(url, answers)
        within(30, lambda: len(answers) > 3)
        for one in [psutil.Process(second.process.pid), *second.ranks()]:
            one.kill()
        expect_ends((first, second))
        thread.join(GONE_SECONDS)
        assert "engine_dead" in "".join(answers[-2:])
        said = first.said()
        # The monitor tells it, unless the stage itself met it first.
        assert "rank 1 is gone" in said, said
    with listen("127.0.0.1", int(url.rpartition(":")[2])), listen("127.0.0.1", port):
        pass


@pytest.mark.nightly
@pytest.mark.parametrize("driver", ["--no-engine-process", "--engine-process"])
@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 2, 1), (2, 2, 2), (1, 4, 2)])
def test_other_shapes_give_the_tokens_of_one_rank(
    tiny_folder: str, shape: tuple[int, int, int], driver: str
) -> None:
    tensor, pipeline, processes = shape
    if pipeline == 4:  # layers
        tiny_folder = "tutor"
    port = free_port()
    args = (tiny_folder, f"--tensor-parallel={tensor}", f"--pipeline-parallel={pipeline}", driver)
    hosts = [torchrun(node, port, *args, processes=processes) for node in (0, 1)]
    with two(*hosts) as (first, second):
        url = address_in(first.process, first.lines)
        assert [greedy(url, prompt) for prompt in PROMPTS] == one_rank(tiny_folder)
        time.sleep(12)  # longer than rank_timeout: silence is not a loss
        assert greedy(url, PROMPTS[0])
        second.ranks()[-1].kill()
        expect_ends((first, second))


@pytest.mark.nightly
@pytest.mark.parametrize("which", [0, 1])
def test_a_host_that_falls_silent_ends_both(tiny_folder: str, which: int) -> None:
    port = free_port()
    args = (tiny_folder, "--tensor-parallel=2", "--no-engine-process", *SMALL, "--rank-timeout=3")
    hosts = by_hand(0, port, *args, "--port=0"), by_hand(1, port, *args)
    with two(*hosts):
        address_in(hosts[0].process, hosts[0].lines)
        time.sleep(5)  # the limit while they start ends with the first beat after it
        hosts[which].process.send_signal(signal.SIGSTOP)
        expect_ends((hosts[1 - which],) * 2)
        assert "is gone: " in hosts[1 - which].said()


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("signalled", [(0,), (0, 1), (1, 0)])
def test_a_signal_ends_both_without_an_error(
    tiny_folder: str, how: signal.Signals, signalled: tuple[int, ...]
) -> None:
    port = free_port()
    args = (tiny_folder, "--pipeline-parallel=2", *SMALL)
    hosts = by_hand(0, port, *args, "--port=0"), by_hand(1, port, *args)
    with two(*hosts):
        address_in(hosts[0].process, hosts[0].lines)
        for which in signalled:
            hosts[which].process.send_signal(how)
        expect_ends(hosts, code=0)
        assert not any("Traceback" in host.said() for host in hosts)


@pytest.mark.nightly
def test_a_second_signal_ends_the_other_host_at_once(tiny_folder: str) -> None:
    port = free_port()
    args = (tiny_folder, "--pipeline-parallel=2", *SMALL)
    hosts = by_hand(0, port, *args, "--port=0"), by_hand(1, port, *args)
    with two(*hosts):
        address_in(hosts[0].process, hosts[0].lines)
        hosts[1].process.send_signal(signal.SIGINT)
        within(5, lambda: "was told to stop" in hosts[1].said())
        hosts[1].process.send_signal(signal.SIGINT)
        expect_ends(hosts)
        assert "rank 1: SIGINT has ended it on its host" in hosts[0].said()


@pytest.mark.nightly
def test_hosts_that_are_started_differently_are_told_so(tiny_folder: str, tmp_path: Path) -> None:
    port = free_port()
    args = (tiny_folder, "--pipeline-parallel=2", "--port=0")
    hosts = by_hand(0, port, *args), by_hand(1, port, *args, "--block-size=32")
    with two(*hosts):
        expect_ends(hosts, 2, START_SECONDS)
        for host in hosts:
            assert "rank 1 has block_size 32, and rank 0 16" in host.said(), host.said()
    port = free_port()
    gone = str(tmp_path / "gone")
    hosts = (
        by_hand(0, port, gone, "--pipeline-parallel=2"),
        by_hand(1, port, gone, "--pipeline-parallel=2"),
    )
    with two(*hosts):
        expect_ends(hosts, 2, START_SECONDS)


@pytest.mark.nightly
def test_what_cannot_work_is_said_before_anything_is_loaded(tiny_folder: str) -> None:
    refused = by_hand(1, 29500, tiny_folder, "--pipeline-parallel=2", size=3)
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        busy = by_hand(0, port, tiny_folder, "--pipeline-parallel=2", "--port=0")
        with two(refused, busy):
            expect_ends((refused, busy), 2, START_SECONDS)
    assert "started 3 processes (WORLD_SIZE)" in refused.said()
    assert f"port {port} of 127.0.0.1 is in use (MASTER_PORT)" in busy.said()
