"""Workload fixed: batches of equal prompts, the milliseconds of their prefill and of a decode step.

A prefill lasts until each of the prompts has its first token, and nothing follows it. Steps are timed
once all prompts of the batch decode: each then gains a token, and no other work is mixed in. A peer
gives no steps to time: its mean is what tokens after the first one took, over their number.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from rich.progress import Progress

from yaie.bench.limits import Limit
from yaie.bench.report import progress, save, show
from yaie.bench.throughput.ablation import FULL, variants
from yaie.bench.throughput.asked import BATCHES, Asked
from yaie.bench.throughput.contestants import prepared, race, run_at_once, with_engine
from yaie.bench.throughput.drawn import described, fixed_jobs
from yaie.bench.throughput.setting import Setting
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OURS = "YAIE"
COLUMNS = (
    "prefill: until the whole batch has its first token; decode step: median over the steps (fastest to "
    "slowest); mean: of all steps together. Each is the median over the seeds"
)
WARM_UP = 8
"""Steps that are not timed, once all decode."""


@dataclass(slots=True)
class Steps:
    """Of one engine or peer at one batch size, seed by seed, the first run before them.

    prefill_ms: until all have their first token. mean_ms: of all timed steps together. median_ms,
    low_ms, high_ms: over the steps. outputs: the tokens that were drawn meanwhile.
    """

    prefill_ms: list[float] = field(default_factory=list)
    mean_ms: list[float] = field(default_factory=list)
    median_ms: list[float] = field(default_factory=list)
    low_ms: list[float] = field(default_factory=list)
    high_ms: list[float] = field(default_factory=list)
    outputs: list[list[list[int]]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For the file: the first run's numbers apart from those of each seed."""
        names = ("prefill_ms", "mean_ms", "median_ms", "low_ms", "high_ms")
        lists = {name: getattr(self, name) for name in names if getattr(self, name)}
        return {
            "first": {name: values[0] for name, values in lists.items()},
            **{name: values[1:] for name, values in lists.items()},
        }


Figures = dict[str, dict[int, Steps]]


def run(config: EngineConfig, asked: Asked, json: str | None) -> None:
    """Time every batch size with each seed, on ours and then on the peers.

    Raises ConfigError for a batch that cannot run at once, YaieError if a request or a peer fails.
    """
    batches = asked.batches or BATCHES
    if max(batches) > config.max_num_seqs:
        raise ConfigError(
            f"a batch of {max(batches)} needs --max-num-seqs {max(batches)}", param="batch"
        )
    if "transformers" in asked.peers or "static" in asked.peers:
        raise ConfigError("--workload fixed takes the peers vllm and sglang", param="peer")
    config = prepared(config, max(batches))
    setting = Setting.of(config, asked)
    chosen, notes = variants(config) if asked.ablation else ({FULL: config}, [])
    figures: Figures = {}
    with progress() as bar:
        for name, one in chosen.items():
            name = OURS if name == FULL else name
            figures[name] = with_engine(one, partial(_ours, setting, batches, name, bar))
        figures |= _peers(setting, batches, bar)
        limit = setting.limit()
    _report(setting, figures, limit, [described(asked), *notes], json)


def _ours(
    setting: Setting, batches: Sequence[int], name: str, bar: Progress, engine: LLMEngine
) -> dict[int, Steps]:
    setting.look(engine)
    asked, found = setting.asked, {}
    task = bar.add_task(name, total=len(batches) * len(asked.order))
    for batch in batches:
        steps = found[batch] = Steps()
        for seed in asked.order:
            prompts = _jobs(setting, batch, 1, seed)
            steps.prefill_ms.append(1e3 * run_at_once(engine, prompts, 0.0).seconds)
            decode_steps(engine, prompts, asked.lengths.output[0], steps)
            bar.advance(task)
    return found


def _jobs(setting: Setting, batch: int, num_output: int, seed: int) -> list[Job]:
    prompt = setting.asked.lengths.prompt[0]
    return fixed_jobs(batch, prompt, num_output, setting.vocab_size, seed)


def decode_steps(engine: LLMEngine, prompts: Sequence[Job], num_steps: int, steps: Steps) -> None:
    """Time `num_steps` steps in which all decode, and abort the requests then.

    Their outputs are long enough for those that decode while the others' prompts are computed. Raises
    YaieError if not all of them fit at once.
    """
    engine.reset_prefix_cache()
    num_tokens = sum(len(job.prompt) for job in prompts)
    budget = engine.config.step_tokens(engine.model.device.type)
    left = max(1, budget - len(prompts))  # by those that decode already
    ahead = num_tokens // left + len(prompts) + 2 * WARM_UP
    params = SamplingParams(temperature=0, max_tokens=num_steps + ahead, ignore_eos=True)
    requests = [engine.add_request(job.prompt, params)[0] for job in prompts]
    try:
        while engine.stats()["num_running"] < len(requests) or not all(
            request.num_output_tokens for request in requests
        ):
            engine.step()
            if any(request.is_finished for request in requests):
                raise YaieError(
                    f"no more than {engine.stats()['num_running']:.0f} of a batch of {len(requests)} "
                    f"run at once: the KV pool holds {engine.pool_tokens:,} tokens. Name smaller "
                    "batches with --batch, shorter prompts, or more blocks with --num-blocks."
                )
        for _ in range(WARM_UP):
            engine.step()
        before = sum(request.num_output_tokens for request in requests)
        times = _times(engine, num_steps)
        drawn = sum(request.num_output_tokens for request in requests) - before
        if drawn != num_steps * len(requests):
            raise YaieError(f"{num_steps} steps of {len(requests)} requests drew {drawn} tokens")
    finally:
        for request in requests:
            engine.abort(request.request_id)
    while engine.has_work:
        engine.step()
    steps.mean_ms.append(statistics.mean(times))
    steps.median_ms.append(statistics.median(times))
    steps.low_ms.append(min(times))
    steps.high_ms.append(max(times))
    steps.outputs.append([request.output_token_ids[:num_steps] for request in requests])


def _times(engine: LLMEngine, num_steps: int) -> list[float]:
    """Milliseconds from each step's end to the next one's: together they are the whole time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    ends = [time.perf_counter()]
    for _ in range(num_steps):
        engine.step()
        ends.append(time.perf_counter())
    return [1e3 * (end - begin) for begin, end in pairwise(ends)]


def _peers(setting: Setting, batches: Sequence[int], bar: Progress) -> Figures:
    """Every batch and seed with one token, and with one more than there are steps."""
    asked, num_steps = setting.asked, setting.asked.lengths.output[0]
    if not asked.peers:
        return {}
    cases = [(batch, seed) for batch in batches for seed in asked.order]
    runs = [
        _jobs(setting, batch, tokens, seed)
        for batch, seed in cases
        for tokens in (1, num_steps + 1)
    ]
    peers = setting.peers(runs)
    raced = race(peers, len(runs), bar, in_turn=setting.in_turn)
    found: Figures = {}
    for peer in peers:
        name = f"{peer.name} {peer.about['version']}"
        found[name] = {batch: Steps() for batch in batches}
        results = iter(raced[peer.name])
        for batch, _ in cases:
            first, whole = next(results), next(results)
            found[name][batch].prefill_ms.append(1e3 * first.seconds)
            mean = 1e3 * (whole.seconds - first.seconds) / num_steps
            found[name][batch].mean_ms.append(mean)
    return found


def _report(
    setting: Setting, figures: Figures, limit: Limit | str, notes: list[str], json: str | None
) -> None:
    ours = next(iter(figures))
    bounds: dict[int, dict[str, float]] = {}
    if not isinstance(limit, str):
        bounds = {batch: _bounds(limit, setting, batch) for batch in figures[ours]}
    if isinstance(limit, str):
        notes.append(limit)
    notes += _answers(figures)
    columns = ["batch", "", "prefill, ms", "decode step, ms", "mean", "share of the limit"]
    rows = [row for batch in figures[ours] for row in _rows(figures, batch, bounds.get(batch))]
    show(f"Fixed batches on {setting.name}", columns, rows, [*notes, COLUMNS])
    batches = {
        batch: {name: one[batch].figures() for name, one in figures.items()}
        for batch in figures[ours]
    }
    data = setting.figures() | {"batches": batches, "limit": bounds or None}
    if not isinstance(limit, str):
        data["ceilings"] = limit.ceilings.as_json()
    save(json, data)


def _rows(
    figures: Figures, batch: int, bounds: dict[str, float] | None
) -> Iterator[tuple[str, ...]]:
    """Two of each engine: what came after the first run, and the first run."""
    ours = next(iter(figures))
    for name, one in figures.items():
        steps = one[batch]
        mean = statistics.median(steps.mean_ms[1:])
        share = (
            f"{bounds['decode_ms'] / mean:.0%} of {bounds['decode_ms']:.3f} ms" if bounds else ""
        )
        spans = ["", ""]
        if steps.median_ms:
            median = statistics.median(steps.median_ms[1:])
            low, high = min(steps.low_ms[1:]), max(steps.high_ms[1:])
            spans = [
                f"{middle:.4g} ({bottom:.4g} to {top:.4g})"
                for middle, bottom, top in (
                    (median, low, high),
                    (steps.median_ms[0], steps.low_ms[0], steps.high_ms[0]),
                )
            ]
        prefill = f"{statistics.median(steps.prefill_ms[1:]):.4g}"
        yield str(batch) if name == ours else "", name, prefill, spans[0], f"{mean:.4g}", share
        yield (
            "",
            "  first run",
            f"{steps.prefill_ms[0]:.4g}",
            spans[1],
            f"{steps.mean_ms[0]:.4g}",
            "",
        )


def _bounds(limit: Limit, setting: Setting, batch: int) -> dict[str, float]:
    """Least milliseconds of the prefill, and of a step halfway through those that are timed."""
    lengths = setting.asked.lengths
    context = lengths.prompt[0] + WARM_UP + lengths.output[0] // 2
    return {
        "prefill_ms": 1e3 * limit.prefill_seconds([lengths.prompt[0]] * batch),
        "decode_ms": 1e3 * limit.step_seconds(batch, batch * context),
    }


def _answers(figures: Figures) -> list[str]:
    """Whether greedy tokens are the same without a technique."""
    ours, *others = figures
    found = []
    for name in others:
        for batch, steps in figures[name].items():
            reference = figures[ours][batch].outputs
            pairs = [
                (a, b)
                for one, two in zip(steps.outputs, reference, strict=False)
                for a, b in zip(one, two, strict=True)
            ]
            differing = sum(a != b for a, b in pairs)
            if differing:
                found.append(f"{name}, batch {batch}: {differing} of {len(pairs)} answers differ")
    if any(steps.outputs for name in others for steps in figures[name].values()):
        found = found or ["greedy tokens are the same in all"]
    return found
