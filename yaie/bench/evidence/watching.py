"""The cost of a watcher for an engine with 64 streams.

    python -m yaie.bench.evidence.watching [path]

Half a minute, on a machine that does nothing else. The same engine computes the same answers in turn
with and without a watcher, who begins changes with each round. Counted is the time in which records are
written and plans are noted, on the engine's thread, as a share of all time; and the speed with a
watcher in terms of that without.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.engine.watching.publisher import Publisher

OUT = EVIDENCE / "watching.json"
ROUNDS = 7
STREAMS = 64
TOKENS = 120


class Timed:
    """A publisher whose calls are timed. seconds: spent in them. num_bytes: sent."""

    def __init__(self, engine: LLMEngine) -> None:
        self.seconds = 0.0
        self.num_bytes = self.num_records = 0
        self.publisher = Publisher(engine, self._send)
        recorder = self.publisher._recorder
        for name in ("_planned", "stepped", "arrived", "flush"):
            setattr(recorder, name, self._timed(getattr(recorder, name)))
        self._depth = 0

    def _timed(self, call: Any) -> Any:
        def timed(*args: Any) -> Any:
            self._depth += 1
            begin = time.perf_counter()
            try:
                return call(*args)
            finally:
                self._depth -= 1
                if not self._depth:  # `flush` is called by `stepped`
                    self.seconds += time.perf_counter() - begin

        return timed

    def _send(self, lines: list[bytes], number: int | None) -> None:
        self.num_records += len(lines)
        self.num_bytes += sum(map(len, lines))


def answered(engine: LLMEngine, prompts: list[list[int]], timed: Timed | None) -> float:
    """Tokens a second."""
    engine.reset_prefix_cache()
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    begin = time.perf_counter()
    for prompt in prompts:
        added = engine.add_request(prompt, params)
        if timed is not None:
            timed.publisher.arrived(added)
    while engine.has_work:
        outputs = engine.step()
        if timed is not None:
            timed.publisher.stepped(outputs)
    return len(prompts) * TOKENS / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a watcher costs.")
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    args = parser.parse_args()
    engine = LLMEngine(mine="none", max_num_seqs=STREAMS)
    question = [{"role": "user", "content": "What is a block table?"}]
    prompts = [engine.encode_chat(question) for _ in range(STREAMS)]
    timed = Timed(engine)
    answered(engine, prompts, None)
    speeds: dict[bool, list[float]] = {True: [], False: []}
    shares, steps = [], []
    for index in range(ROUNDS):
        for watched in (True, False) if index % 2 else (False, True):
            before, steps_before = timed.seconds, engine.num_steps
            if watched:
                timed.publisher.watch(1, [])
            speed = answered(engine, prompts, timed if watched else None)
            speeds[watched].append(speed)
            if watched:
                timed.publisher.unwatch(1)
                seconds = STREAMS * TOKENS / speed
                shares.append((timed.seconds - before) / seconds)
                steps.append(1000 * seconds / (engine.num_steps - steps_before))
    ratios = sorted(on / off for on, off in zip(speeds[True], speeds[False], strict=True))
    save(
        str(args.path),
        {
            "command": "python -m yaie.bench.evidence.watching",
            "workload": f"{STREAMS} streams of the tutor, {TOKENS} tokens each, {ROUNDS} rounds",
            "share": {"median": median(shares), "low": min(shares), "high": max(shares)},
            "ratio": {"median": median(ratios), "low": ratios[0], "high": ratios[-1]},
            "step_ms": median(steps),
            "records": timed.num_records / ROUNDS,
            "bytes": timed.num_bytes / ROUNDS,
        },
    )


if __name__ == "__main__":
    main()
