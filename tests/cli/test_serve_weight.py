"""`yaie serve` on a laptop: how much memory it takes at its defaults, and how soon it ends."""

import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch

from tests.cli.test_serve import address_in, server

MB = 1000  # in kB, as /proc counts
MOST_MEMORY = 700 * MB
MOST_SECONDS = 2.0

BOTH = ("--engine-process", "--no-engine-process")
MODES = pytest.mark.parametrize("mode", BOTH)
LINUX = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc"
)
CPU_BUILD = pytest.mark.skipif(
    torch.version.cuda is not None,
    reason="needs the CPU build of torch: CUDA's libraries are larger",
)


def proportional_size(process: psutil.Process) -> int:
    """In kB; of pages that several processes share, this one's part."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1])


def use(url: str) -> None:
    """One request of each kind that might load something late."""
    user = {"role": "user", "content": "What is a block table?"}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    asked: dict[str, Any]
    for more in ({"logprobs": True, "top_logprobs": 2}, {"response_format": schema}):
        asked = {"messages": [user], "max_tokens": 4, **more}
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60)
        assert answer.status_code == 200, answer.text
    for path, asked in (
        ("/tokenize", {"prompt": "What is a block?"}),
        ("/v1/completions", {"prompt": "A", "echo": True, "logprobs": 1, "max_tokens": 2}),
    ):
        assert httpx.post(url + path, json=asked, timeout=60).status_code == 200
    for path in ("/metrics", "/health", "/openapi.json"):
        assert httpx.get(url + path, timeout=60).status_code == 200


@pytest.mark.slow
@LINUX
@CPU_BUILD
@pytest.mark.nightly
@pytest.mark.parametrize("mode", BOTH)
def test_the_tutors_server_fits_a_laptop_and_ends_at_once(mode: str) -> None:
    with server(mode, "--mine=none") as (process, lines):
        url = address_in(process, lines)
        main = psutil.Process(process.pid)
        family = [main, *main.children(recursive=True)]
        sizes = {member.pid: proportional_size(member) for member in family}
        assert sum(sizes.values()) < MOST_MEMORY, sizes
        use(url)
        has_torch = "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
        assert has_torch == (mode == "--no-engine-process")

        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        seconds = time.monotonic() - begin
        assert seconds < MOST_SECONDS
    assert process.returncode == 0
    assert "Stopped." in "".join(lines)
    assert "Traceback" not in "".join(lines)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
@MODES
def test_what_was_logged_and_registered_for_the_end_is_not_lost(
    mode: str, tiny_folder: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with server(tiny_folder, mode, "--mine=none", "--num-blocks=64", f"--log-file={log}") as (
        process,
        lines,
    ):
        url = address_in(process, lines)
        family = psutil.Process(process.pid).children(recursive=True)
        body = {"prompt": "hello", "max_tokens": 2}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=30).status_code == 200
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert "output 2" in log.read_text()
    assert "leaked" not in "".join(lines)  # as multiprocessing's tracker would say
    _, alive = psutil.wait_procs(family, timeout=5)
    assert all(member.status() == psutil.STATUS_ZOMBIE for member in alive)
