"""The engine on a CPU beside llama.cpp: the same file, the same threads, in turn.

    python -m yaie.bench.evidence.beside_llama_cpp FOLDER MODEL.gguf [path]

FOLDER: has llama-bench and llama-batched-bench, built on this machine (cmake with GGML_NATIVE, Release).
Takes ten minutes, on a machine that does nothing else. After a round that does not count, five do.
Tokens a second:

    decode 1, 8     64 steps of so many requests, after prompts of 8 tokens
    decode at 6000  32 steps of one request, after a prompt of 6,000 tokens
    prompt 512      one prompt

llama.cpp keeps keys and values in float16 and rounds each x to eight bits for its products. The engine
runs in float32 and in bfloat16, and rounds x for products in neither.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "cpu_llama_cpp.json"
ROUNDS = 5
SHORT, STEPS, BATCHES = 8, 64, (1, 8)
LONG, LONG_STEPS = 6000, 32
PROMPT = 512
DTYPES = ("float32", "bfloat16")
Rates = dict[str, float]


def of_llama_cpp(folder: Path, model: str, threads: int) -> Rates:
    """One round."""
    common = ["-m", model, "-t", str(threads)]

    def bench(*arguments: str) -> float:
        command = [str(folder / "llama-bench"), *common, *arguments, "-r", "1", "-o", "json"]
        found: float = json.loads(_printed(command))[0]["avg_ts"]
        return found

    batches = ",".join(map(str, BATCHES))
    command = [
        str(folder / "llama-batched-bench"), *common, "-c", "8192", "-npp", str(SHORT),
        "-ntg", str(STEPS), "-npl", batches, "--output-format", "jsonl",
    ]  # fmt: skip
    lines = [line for line in _printed(command).splitlines() if line.startswith("{")]
    rates = {f"decode {one['pl']}": float(one["speed_tg"]) for one in map(json.loads, lines)}
    rates[f"decode at {LONG}"] = bench("-p", "0", "-n", str(LONG_STEPS), "-d", str(LONG))
    rates[f"prompt {PROMPT}"] = bench("-p", str(PROMPT), "-n", "0")
    return rates


def _printed(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Ours:
    """The engine with the model, loaded once."""

    def __init__(self, model: str, dtype: str) -> None:
        self._engine = LLMEngine(model=model, device="cpu", dtype=dtype, num_blocks=2048)
        self._random = random.Random(0)

    def rates(self) -> Rates:
        """One round."""
        rates = {f"decode {count}": self._decode(count, SHORT, STEPS) for count in BATCHES}
        rates[f"decode at {LONG}"] = self._decode(1, LONG, LONG_STEPS)
        began = time.perf_counter()
        self._finish(1, PROMPT, 1)
        rates[f"prompt {PROMPT}"] = PROMPT / (time.perf_counter() - began)
        return rates

    def _decode(self, count: int, length: int, steps: int) -> float:
        self._add(count, length, steps + 4)
        while any(len(one.output_token_ids) < 2 for one in self._requests):
            self._engine.step()
        began = time.perf_counter()
        for _ in range(steps):
            self._engine.step()
        rate = count * steps / (time.perf_counter() - began)
        self._run()
        return rate

    def _finish(self, count: int, length: int, tokens: int) -> None:
        self._add(count, length, tokens)
        self._run()

    def _add(self, count: int, length: int, tokens: int) -> None:
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
        self._requests = []
        for _ in range(count):
            prompt = [self._random.randrange(1000, 40_000) for _ in range(length)]
            self._requests += self._engine.add_request(prompt, params)

    def _run(self) -> None:
        while self._engine.has_work:
            self._engine.step()


def rounds_of(folder: Path, model: str) -> Iterator[dict[str, Rates]]:
    """Each of llama.cpp and of the engine in each dtype. Who begins changes."""
    threads = torch.get_num_threads()
    engines = {dtype: Ours(model, dtype) for dtype in DTYPES}
    for index in range(1 + ROUNDS):
        names = ["llama.cpp", *DTYPES]
        found = {}
        for name in names if index % 2 else names[::-1]:
            is_theirs = name == "llama.cpp"
            found[name] = (
                of_llama_cpp(folder, model, threads) if is_theirs else engines[name].rates()
            )
            time.sleep(1)  # threads that wait for work turn on their cores for a while
        print(index, json.dumps(found), flush=True)
        if index:
            yield found


def main(arguments: Sequence[str]) -> None:
    folder, model = Path(arguments[0]), arguments[1]
    out = arguments[2] if len(arguments) > 2 else str(OUT)
    rounds = list(rounds_of(folder, model))
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.beside_llama_cpp FOLDER MODEL.gguf",
        "model": Path(model).name,
        "pairs": ROUNDS,
        **{dtype: _beside(rounds, dtype) for dtype in DTYPES},
    }
    save(out, figures)


def _beside(rounds: Sequence[dict[str, Rates]], dtype: str) -> dict[str, dict[str, list[float]]]:
    """Of each rate: the engine's, llama.cpp's, and the ratios, in the order of rounds."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in rounds:
        for name, ours in one[dtype].items():
            theirs = one["llama.cpp"][name]
            for side, rate in (("ours", ours), ("theirs", theirs), ("ratio", ours / theirs)):
                found.setdefault(name, {}).setdefault(side, []).append(rate)
    for name, sides in found.items():
        print(f"{dtype} {name}: ratio {median(sides['ratio']):.2f}")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
