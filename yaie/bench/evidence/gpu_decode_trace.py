"""What a GPU does in steps of steady decode: how long it computes, how long it waits for the next.

    python -m yaie.bench.evidence.gpu_decode_trace MODEL [--batch 1 --batch 256] [--steps 20]
                                                   [--trace FILE]

PyTorch's profiler tells when each kernel and each copy began and ended. A step begins with the upload of
its inputs. Of each batch size the file names the share of a step in which nothing ran at all, and the
share that lies between the last kernel of a replay and the first of the next one. --trace keeps the
timeline of three steps of each size, for chrome://tracing or https://ui.perfetto.dev.
"""

import argparse
import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.config import EngineConfig
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "gpu_decode_trace.json"
PROMPT, WARM_UP = 1024, 10
UPLOAD, COPY = "Memcpy HtoD", "Memcpy"
KEPT_STEPS = 3


class Span(NamedTuple):
    """Microseconds on the device, and what ran."""

    begin: float
    end: float
    name: str


def spans_of(engine: LLMEngine, batch: int, steps: int) -> list[Span]:
    """Of so many steps in which `batch` requests decode, in order."""
    rng = random.Random(batch)
    params = SamplingParams(
        temperature=0.6, max_tokens=4 * (steps + WARM_UP + batch), ignore_eos=True
    )
    requests = [
        engine.add_request([rng.randrange(10_000) for _ in range(PROMPT)], params)[0]
        for _ in range(batch)
    ]
    while not all(request.num_output_tokens for request in requests):
        engine.step()
    for _ in range(WARM_UP):
        engine.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            engine.step()
        torch.cuda.synchronize()
    for request in requests:
        engine.abort(request.request_id)
    while engine.has_work:
        engine.step()
    found = [
        Span(event.time_range.start, event.time_range.end, event.name)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return sorted(found)


def figures(spans: list[Span]) -> dict[str, Any]:
    """Medians over whole steps, in microseconds and as shares of a step."""
    uploads = [index for index, span in enumerate(spans) if span.name.startswith(UPLOAD)]
    whole, idle, between, kernels = [], [], [], []
    for first, last in list(pairwise(uploads))[1:-1]:
        step = spans[first:last]
        whole.append(spans[last].begin - spans[first].begin)
        idle.append(whole[-1] - _covered(step))
        own = [span for span in step if not span.name.startswith(COPY)]
        before = [span for span in spans[:first] if not span.name.startswith(COPY)]
        between.append(own[0].begin - max(span.end for span in before))
        kernels.append(len(own))
    step_us = median(whole)
    return {
        "step_us": step_us,
        "kernels": median(kernels),
        "idle_us": median(idle),
        "idle_share": median(idle) / step_us,
        "between_replays_us": median(between),
        "between_replays_share": median(between) / step_us,
    }


def _covered(spans: list[Span]) -> float:
    """Microseconds in which at least one of them ran."""
    total, reached = 0.0, float("-inf")
    for begin, end, _ in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def timeline(batch: int, spans: list[Span]) -> list[dict[str, Any]]:
    """Some steps from the middle as events of a Chrome trace; each batch size is a process."""
    uploads = [index for index, span in enumerate(spans) if span.name.startswith(UPLOAD)]
    middle = len(uploads) // 2
    kept = spans[uploads[middle] : uploads[middle + KEPT_STEPS]]
    origin = kept[0].begin
    return [
        {"name": name[:60], "ph": "X", "pid": f"batch {batch}", "tid": "GPU",
         "ts": round(begin - origin, 2), "dur": round(end - begin, 2)}
        for begin, end, name in kept
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--json", default=str(OUT))
    parser.add_argument("--trace", help="a file that ends in .json.gz")
    asked = parser.parse_args()
    engine = LLMEngine(
        EngineConfig(model=asked.model, max_model_len=asked.max_model_len, token_budget=16384)
    )
    batches, events = {}, []
    for batch in asked.batch or [1, 256]:
        spans = spans_of(engine, batch, asked.steps)
        batches[batch] = figures(spans)
        events += timeline(batch, spans)
        print(f"batch {batch}: {batches[batch]}", flush=True)
    engine.close()
    command = "python -m yaie.bench.evidence.gpu_decode_trace"
    save(asked.json, {"command": command, "prompt_tokens": PROMPT,
                      "model": Path(asked.model).name, "batches": batches})  # fmt: skip
    if asked.trace:
        Path(asked.trace).write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))


if __name__ == "__main__":
    main()
