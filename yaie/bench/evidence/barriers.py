"""What barriers cost a step beside another thread that computes, for chapter "Configuration".

python -m yaie.bench.evidence.barriers

The tutor decodes alone, beside a thread that stepped back, as those for long texts do, and beside one
that did not; with the spins that `yaie` sets, and with those of GCC's OpenMP.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.system.processor import usable_cores
from yaie.system.thread_niceness import SPIN_VARIABLES, SPINS, step_back

OUT = EVIDENCE / "barriers.json"
BESIDE = ("alone", "behind", "equal")
SPIN_COUNTS = {"default": None, "ours": SPINS}
ROUNDS, WARM, STEPS = 3, 60, 400
BATCHES = (1, 8)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(_steps(sys.argv[1], int(sys.argv[2]))))
        return
    seen: dict[str, list[list[float]]] = {}
    for _ in range(ROUNDS):  # in turns, so that what else runs meanwhile meets each
        for beside in BESIDE:
            for batch in BATCHES if beside == "alone" else BATCHES[:1]:
                for name, spins in SPIN_COUNTS.items():
                    key = f"{beside}_{batch}_{name}"
                    seen.setdefault(key, []).append(_child(beside, batch, spins))
    figures = {
        "command": "python -m yaie.bench.evidence.barriers",
        "workload": f"{STEPS} decode steps of the tutor, {ROUNDS} processes in turns; alone, beside a "
        "thread of the lowest priority (behind), or beside one of the same (equal); batch 1 or 8",
        "spins": SPINS,
        "cores": usable_cores(),
        "steps": ROUNDS * STEPS,
        "step_ms": {key: _summary(runs) for key, runs in seen.items()},
    }
    print(json.dumps(figures, indent=2))
    save(str(OUT), figures)


def _child(beside: str, batch: int, spins: int | None) -> list[float]:
    """Milliseconds of each step, in a process of its own: OpenMP reads its variables once."""
    environment = {k: v for k, v in os.environ.items() if k not in SPIN_VARIABLES}
    if spins is not None:
        environment["GOMP_SPINCOUNT"] = str(spins)
    command = [sys.executable, "-m", "yaie.bench.evidence.barriers", beside, str(batch)]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    taken: list[float] = json.loads(ran.stdout)
    return taken


def _summary(runs: list[list[float]]) -> dict[str, object]:
    together = sorted(ms for run in runs for ms in run)
    return {
        "mean": statistics.fmean(together),
        "median": statistics.median(together),
        "p99": together[len(together) * 99 // 100],
        "longest": together[-1],
        "medians": [statistics.median(run) for run in runs],
    }


def _steps(beside: str, batch: int) -> list[float]:
    engine = LLMEngine(mine="none")
    _decode(engine, batch, WARM)
    is_over = threading.Event()
    other = threading.Thread(target=_compute, args=(beside == "behind", is_over))
    if beside != "alone":
        other.start()
    try:
        return _decode(engine, batch, STEPS)
    finally:
        is_over.set()


def _compute(behind: bool, is_over: threading.Event) -> None:
    """Keep a core busy, without the GIL."""
    if behind:
        step_back()
    while not is_over.is_set():
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 5_000)


def _decode(engine: LLMEngine, batch: int, steps: int) -> list[float]:
    params = SamplingParams(temperature=0, max_tokens=steps + 1, ignore_eos=True)
    for _ in range(batch):
        engine.add_request("What is a block table?", params)
    taken: list[float] = []
    while engine.has_work:
        begin = time.perf_counter()
        engine.step()
        taken.append(1e3 * (time.perf_counter() - begin))
    return taken[1:]  # without the prompt's


if __name__ == "__main__":
    main()
