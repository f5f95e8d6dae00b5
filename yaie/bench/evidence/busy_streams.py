"""What other programs cost a stream of the server on a CPU, for chapter "Configuration".

python -m yaie.bench.evidence.busy_streams

A client asks `yaie serve` for an answer of the tutor, again and again, beside endless loops in Python.
All servers run all the time, and are asked in turns: what is not asked sleeps.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.served import environment, serving
from yaie.core.config import EngineConfig
from yaie.system.processor import usable_cores
from yaie.system.thread_niceness import SPIN_VARIABLES
from yaie.worker.threads import VARIABLES

OUT = EVIDENCE / "busy_streams.json"
BESIDE = {
    "nothing": [], "lowest": [19], "low": [10], "one": [0], "two": [0] * 2, "ten": [0] * 10,
}  # fmt: skip
"""The nice values of the loops that run beside."""
SERVERS: dict[str, dict[str, str]] = {
    "ours": {},
    "all_threads": {"OMP_NUM_THREADS": str(usable_cores() or os.cpu_count() or 1)},
    "one_thread": {"OMP_NUM_THREADS": "1"},
    "passive": {
        "OMP_NUM_THREADS": str(usable_cores() or os.cpu_count() or 1), "OMP_WAIT_POLICY": "passive",
    },
}  # fmt: skip
"""What is set in the environment of each."""
ROUNDS, STREAMS, TOKENS = 1, 5, 100
LEFT_OUT = ("all_threads", "ten")
"""A stream takes minutes there."""
SETTLE = 0.3


def main() -> None:
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in SERVERS}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(_server(more)) for name, more in SERVERS.items()}
        for url in urls.values():
            _stream(url)
        for _ in range(ROUNDS):
            for beside, loops in BESIDE.items():
                with _loops(loops):
                    for name, url in urls.items():
                        if (name, beside) == LEFT_OUT:
                            continue
                        rates = [_stream(url) for _ in range(STREAMS)]
                        seen[name].setdefault(beside, []).extend(rates)
                        print(beside, name, *(f"{rate:.0f}" for rate in rates), flush=True)
    medians = {
        name: {beside: statistics.median(rates) for beside, rates in own.items()}
        for name, own in seen.items()
    }
    print(json.dumps(medians, indent=2))
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.busy_streams",
            "workload": f"{ROUNDS} x {STREAMS} streams of {TOKENS} tokens, one after the other, "
            "of the tutor in `yaie serve`, beside endless loops of Python in other processes",
            "cores": usable_cores(),
            "tokens_per_second": medians,
            "of_idle": {
                beside: median / medians["ours"]["nothing"]
                for beside, median in medians["ours"].items()
            },
            "spread": {
                name: {beside: [min(rates), max(rates)] for beside, rates in own.items()}
                for name, own in seen.items()
            },
        },
    )


@contextmanager
def _server(more: dict[str, str]) -> Iterator[str]:
    """The address of a server that has `more` in its environment, and nothing on threads beside it."""
    unset = (*SPIN_VARIABLES, *VARIABLES)
    kept = {name: value for name, value in environment().items() if name not in unset}
    with serving(EngineConfig(mine="none"), "--log-level=warning", env=kept | more) as (url, _):
        yield url


@contextmanager
def _loops(nice: list[int]) -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.nice({by})\nwhile True: pass"])
        for by in nice
    ]
    time.sleep(SETTLE)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _stream(url: str) -> float:
    """Tokens a second, from the request to the end of the answer."""
    body = {
        "messages": [{"role": "user", "content": "What is a block table?"}],
        "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begin = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        for _ in answer:
            pass
    return TOKENS / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
