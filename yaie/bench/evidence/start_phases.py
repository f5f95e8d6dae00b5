"""Where a step's time goes, and what the four requests cost together, for chapter "The whole game".

    python -m yaie.bench.evidence.start_phases

The engine is assembled as always, from parts whose classes note how long their methods take: what the
contracts name, and nothing inside. Medians over steps, after a warm-up that compiles kernels.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from yaie.backends import choose_backend
from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.bench.workload import Lengths, draw_jobs
from yaie.core.config import EngineConfig
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.build import build
from yaie.engine.llm_engine import LLMEngine
from yaie.engine.machine import Machine
from yaie.engine.step.byte_text import ByteDetokenizer
from yaie.models.loader import ModelLoader, resolve_device
from yaie.parts import Parts

OUT = EVIDENCE / "start_phases.json"
SIZES = (1, 4, 64)
STEPS, WARM_UP, ROUNDS = 48, 8, 5
TIMED = {  # lab, class: the methods of the contract that a step calls, and the phase they belong to
    ("scheduler", "Scheduler"): {"schedule": "schedule", "advance": "update", "update": "update"},
    ("radix_attention", "RadixAttention"): {"plan": "attention", "run": "attention"},
    ("sampler", "Sampler"): {"sample": "sample"},
    ("engine", "Detokenizer"): {"push": "text"},
    ("engine", "StopChecker"): {"push": "text"},
}
PHASES = ("schedule", "weights", "attention", "logits", "sample", "update", "text", "rest")


class Clock:
    """Seconds spent in each phase since `reset`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[phase] += time.perf_counter() - begin

        return wrapped


class TimedParts:
    """The reference's packages, with timed subclasses in place of some classes."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self.table = parts.table
        self._packages = {}
        for lab in (
            "transformer_ops",
            "paged_cache",
            "radix_tree",
            "radix_attention",
            "sampler",
            "scheduler",
            "engine",
        ):
            self._packages[lab] = SimpleNamespace(**vars(parts[lab]))
        for (lab, name), methods in TIMED.items():
            base = getattr(parts[lab], name)
            timed = {
                method: clock.timed(phase, getattr(base, method))
                for method, phase in methods.items()
            }
            setattr(self._packages[lab], name, type(name, (base,), timed))

    def __getitem__(self, lab: str) -> Any:
        return self._packages[lab]


def main() -> None:
    clock = Clock()
    config = EngineConfig(
        mine="none", prefix_caching=False, device="cpu", backend="torch", overlap="off"
    )
    backend = choose_backend(config, resolve_device(config))
    backend.parts = TimedParts(backend.parts, clock)  # type: ignore[assignment]
    model = ModelLoader(config).load(backend.make_ops())
    # `forward` calls attention, whose time is taken off below.
    model.adapter.forward = clock.timed("weights", model.adapter.forward)  # type: ignore[method-assign]
    model.adapter.logits = clock.timed("logits", model.adapter.logits)  # type: ignore[method-assign]
    # What the engine takes in place of the reference's Detokenizer.
    ByteDetokenizer.push = clock.timed("text", ByteDetokenizer.push)  # type: ignore[method-assign]
    machine = build(config, backend, model)
    vocab, steps = model.tokenizer.vocab_size, {}
    for size in SIZES:
        prompts = [job.prompt for job in draw_jobs(size, Lengths((64, 64), (1, 1)), vocab)]
        steps[f"decode_{size}"] = _decode(machine, clock, prompts)
        print(f"decode {size}", _said(steps[f"decode_{size}"]), flush=True)
    prompts = [job.prompt for job in draw_jobs(WARM_UP + STEPS, Lengths((512, 512), (1, 1)), vocab)]
    steps["prefill_512"] = _prefill(machine, clock, prompts)
    print("prefill 512", _said(steps["prefill_512"]), flush=True)
    figures = {
        "command": "python -m yaie.bench.evidence.start_phases",
        "workload": f"the tutor; medians of {STEPS} steps; decodes after prompts of 64 tokens",
        "steps": steps,
        "four": _four(),
    }
    save(str(OUT), figures)


def _said(step: dict[str, Any]) -> str:
    return " ".join(f"{name} {value:.2f}" for name, value in step["ms"].items())


def _decode(machine: Machine, clock: Clock, prompts: Sequence[list[int]]) -> dict[str, Any]:
    """Milliseconds by phase, and shares, of steps in which these requests gain a token each."""
    params = SamplingParams(temperature=0, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        request = Request(
            f"d{index}", prompt, params, arrival=index, max_tokens=STEPS + WARM_UP + 8
        )
        machine.core.add_request(request)
    steps = [_step(machine, clock) for _ in range(1 + WARM_UP + STEPS)][-STEPS:]
    while machine.core.has_work:
        machine.core.step()
    return _medians(steps)


def _prefill(machine: Machine, clock: Clock, prompts: Sequence[list[int]]) -> dict[str, Any]:
    """The same of steps that compute one whole prompt each."""
    steps = []
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0, ignore_eos=True)
        machine.core.add_request(Request(f"p{index}", prompt, params, max_tokens=1))
        steps.append(_step(machine, clock))
    return _medians(steps[WARM_UP:])


def _step(machine: Machine, clock: Clock) -> dict[str, float]:
    clock.seconds.clear()
    begin = time.perf_counter()
    machine.core.step()
    total = time.perf_counter() - begin
    seconds = dict(clock.seconds)
    seconds["weights"] -= seconds["attention"]
    seconds["rest"] = total - sum(seconds.values())
    return seconds


def _medians(steps: list[dict[str, float]]) -> dict[str, Any]:
    ms = {
        phase: 1e3 * statistics.median(step.get(phase, 0.0) for step in steps) for phase in PHASES
    }
    total = sum(ms.values())
    return {
        "ms": ms,
        "total_ms": total,
        "share": {name: value / total for name, value in ms.items()},
    }


def _four() -> dict[str, float]:
    """Milliseconds for A to D in one batch, and one after the other, both from an empty cache."""
    engine = LLMEngine(mine="none")
    together, alone = [], []
    for _ in range(ROUNDS + 1):
        together.append(_seconds(engine, [list(four.QUESTIONS)]))
        alone.append(_seconds(engine, [[name] for name in four.QUESTIONS]))
    batch, single = statistics.median(together[1:]), statistics.median(alone[1:])
    figures = {"together_ms": 1e3 * batch, "one_by_one_ms": 1e3 * single, "ratio": single / batch}
    print(figures, flush=True)
    return figures


def _seconds(engine: LLMEngine, groups: Sequence[Sequence[str]]) -> float:
    engine.reset_prefix_cache()
    begin = time.perf_counter()
    for names in groups:
        for name in names:
            engine.add_request(
                engine.encode_chat(four.messages(name)), SamplingParams(temperature=0)
            )
        while engine.has_work:
            engine.step()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
