"""What each fusion of the decode step is worth: the step without it, at batch 1 and 32.

    python -m yaie.bench.evidence.gpu_fusions [path] [--shape NAME] [--deterministic]

Two minutes, on a GPU that does nothing else. Each engine has prompts of 1,024 tokens, records only the
graphs that it needs, and is timed in two rounds, the second in the opposite order; of a round counts the
median of 64 steps. Where a fusion is left out, the kernels of the labs do its work one by one.
"""

import argparse
import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from yaie.backends import early
from yaie.backends.attention import RotateAndStore
from yaie.backends.gemm import fused
from yaie.backends.triton import TritonBackend
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.shapes import checkpoint
from yaie.bench.throughput.contestants import with_engine
from yaie.bench.throughput.drawn import fixed_jobs
from yaie.bench.throughput.fixed import Steps, decode_steps
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "gpu_fusions.json"
BATCHES, PROMPT, STEPS = (1, 32), 1024, 64
ALL = "all fusions"
WHOLE = "deterministic"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    names = [ALL, WHOLE] if args.deterministic else [ALL, *LEFT_OUT]
    batches = (*BATCHES, 256) if args.deterministic else BATCHES
    found: dict[str, dict[str, list[float]]] = {
        name: {str(batch): [] for batch in batches} for name in names
    }
    with checkpoint(args.shape, None) as folder:
        config = EngineConfig(
            model=str(folder), max_model_len=2048, graphs="lazy", mine="none", num_blocks=256 * 96
        )
        for order in (names, names[::-1]):
            for name in order:
                chosen = replace(config, deterministic=name == WHOLE)
                with LEFT_OUT.get(name, contextlib.nullcontext)():
                    each = with_engine(chosen, partial(step_ms, batches))
                for batch, milliseconds in each.items():
                    found[name][str(batch)].append(milliseconds)
                print(name, {batch: round(ms, 3) for batch, ms in each.items()}, flush=True)
            save(str(args.path), figures(args.shape, found))


def figures(shape: str, found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """What is written, after each round."""
    return {
        "command": "python -m yaie.bench.evidence.gpu_fusions"
        + " --deterministic" * (WHOLE in found),
        "workload": f"prompts of {PROMPT:,} tokens; median of {STEPS} decode steps, two rounds",
        "model": shape,
        "step_ms": found,
        "mean_ms": {
            name: {batch: statistics.mean(rounds) for batch, rounds in of.items() if rounds}
            for name, of in found.items()
        },
    }


def step_ms(batches: tuple[int, ...], engine: LLMEngine) -> dict[int, float]:
    """Milliseconds of a decode step, by batch size; the first run of each only warms up."""
    measured = {}
    vocab = engine.model.adapter.vocab_size
    for batch in batches:
        steps = Steps()
        for seed in (0, 0):
            jobs = fixed_jobs(batch, PROMPT, 1, vocab, seed)
            decode_steps(engine, jobs, STEPS, steps)
        measured[batch] = steps.median_ms[-1]
    return measured


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """The backend without what these methods of it make."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(TritonBackend, name, lambda self: None))
        yield


@contextlib.contextmanager
def _no_early_launch() -> Iterator[None]:
    """Every kernel waits until the one in front has ended."""
    import yaie.backends.fused as layers

    with contextlib.ExitStack() as stack:
        for module in (early, fused, layers):
            stack.enter_context(patch.object(module, "starts_early", lambda device: False))
        yield


@contextlib.contextmanager
def _rotation_apart() -> Iterator[None]:
    """Rotation and store are launches of their own, and so are norms."""
    make = TritonBackend._rotate_and_store

    def apart(self: TritonBackend) -> RotateAndStore:
        store = make(self)
        assert store._rope_and_store is not None  # or there was nothing to take apart
        store._rope_and_store = None
        return store

    with (
        _without("_norm_rope_store"),
        patch.object(TritonBackend, "_rotate_and_store", apart),
    ):
        yield


@contextlib.contextmanager
def _nothing_fused() -> Iterator[None]:
    with _rotation_apart(), _without("_fused_gemm"):
        yield


LEFT_OUT: dict[str, Any] = {
    "without norm, gate and addition in the products": partial(_without, "_fused_gemm"),
    "without norms in the launch that rotates and stores": partial(_without, "_norm_rope_store"),
    "without norms and rotation in the launch that stores": _rotation_apart,
    "without early launch": _no_early_launch,
    "without all of them but early launch": _nothing_fused,
}


if __name__ == "__main__":
    main()
