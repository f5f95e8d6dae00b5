"""`yaie serve --role` as processes: two servers share the work, and nothing of them is left."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_serve import address_in, server
from tests.judges.programs import free_port
from tests.server.conftest import within

pytestmark = pytest.mark.slow
PROMPT = "A paged KV cache keeps keys and values in blocks. " * 8
SHARED = Path("/dev/shm")


@dataclass
class Served:
    process: "subprocess.Popen[str]"
    lines: list[str]
    url: str = ""

    def ask(self, **wanted: Any) -> dict[str, Any]:
        body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, "logprobs": 1} | wanted
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        (line,) = [one for one in text.splitlines() if one.startswith(f"vllm:{name}")]
        return float(line.rpartition(" ")[2])


class Pair:
    """Servers that meet at one address: a socket's path, or a host and a port."""

    def __init__(self, model: str, address: str, stack: ExitStack) -> None:
        self.address, self._model, self._stack = address, model, stack

    def start(self, *roles: str) -> list[Served]:
        """Side by side: each answers after seconds."""
        made = []
        for role in roles:
            options = (
                "--role",
                role,
                "--handover",
                self.address,
                "--num-blocks=64",
                "--mine=none",
            )
            made.append(Served(*self._stack.enter_context(server(self._model, *options))))
        for one in made:
            one.url = address_in(one.process, one.lines)
        return made


@pytest.fixture
def between_hosts() -> bool:
    """Whether they meet over TCP."""
    return False


@pytest.fixture
def pair(tiny_folder: str, between_hosts: bool) -> Iterator[Pair]:
    before = set(os.listdir(SHARED)) if SHARED.is_dir() else set()
    with tempfile.TemporaryDirectory(prefix="yaie-") as short, ExitStack() as stack:
        address = f"127.0.0.1:{free_port()}" if between_hosts else str(Path(short) / "blocks")
        yield Pair(tiny_folder, address, stack)
    after = set(os.listdir(SHARED)) if SHARED.is_dir() else set()
    assert not {name for name in after - before if "yaie" in name}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    left, right = one["choices"][0], other["choices"][0]
    pairs = zip(
        left["logprobs"]["token_logprobs"], right["logprobs"]["token_logprobs"], strict=True
    )
    return left["text"] == right["text"] and all(abs(a - b) < 1e-3 for a, b in pairs)


@pytest.mark.nightly
def test_a_decode_server_goes_on_from_the_blocks_of_a_prefill_server(pair: Pair) -> None:
    prefill, decode = pair.start("prefill", "decode")
    # Whichever came first: the decode server finds the other one when it is there.
    within(30, lambda: Path(pair.address).exists())
    within(30, lambda: bool(decode.ask(prompt=os.urandom(60).hex())) and
           decode.metric("external_prefix_cache_hits_total") > 0)  # fmt: skip
    for wanted in ({"temperature": 0}, {"temperature": 1, "seed": 5}):
        assert same(decode.ask(**wanted), prefill.ask(**wanted))
    for one in (decode, prefill):
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 0
    assert not Path(pair.address).exists()


@pytest.mark.nightly
@pytest.mark.parametrize("between_hosts", [False, True], ids=["one host", "two hosts"])
def test_a_killed_server_leaves_the_other_one_whole(pair: Pair) -> None:
    (prefill,) = pair.start("prefill")
    (decode,) = pair.start("decode")
    answer = decode.ask(temperature=0)
    assert decode.metric("external_prefix_cache_hits_total") > 0
    prefill.process.kill()
    prefill.process.wait()
    # Its socket is still there, and no process listens.
    assert decode.ask(temperature=0, prompt="other " + PROMPT)
    assert same(decode.ask(temperature=0), answer)
    (again,) = pair.start("prefill")
    before = decode.metric("external_prefix_cache_hits_total")
    within(30, lambda: bool(decode.ask(prompt=os.urandom(60).hex())) and
           decode.metric("external_prefix_cache_hits_total") > before)  # fmt: skip
    decode.process.kill()
    decode.process.wait()
    assert same(again.ask(temperature=0), answer)
    within(10, lambda: again.metric("kv_cache_usage_perc") == 0)
    again.process.send_signal(signal.SIGTERM)
