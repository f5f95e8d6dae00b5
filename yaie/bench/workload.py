"""What is run: requests with given lengths, and what happened to each."""

import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.models.loader import resolve_device
from yaie.worker.sizing import CPU_SHARE

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

LONGEST_GEOMETRIC = 256


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long prompts and outputs are: uniform in a range, outputs geometric if a mean is given."""

    prompt: tuple[int, int]
    output: tuple[int, int]
    geometric_mean: float | None = None

    @classmethod
    def parse(cls, prompt: str, output: str, geometric_mean: float | None) -> "Lengths":
        """From `LOW-HIGH` texts, or one number for both. Raises ConfigError."""
        if geometric_mean is not None and geometric_mean <= 1:
            raise ConfigError("--geometric must be a mean above 1", param="geometric")
        ranges = parse_range(prompt, "prompt-tokens"), parse_range(output, "output-tokens")
        return cls(*ranges, geometric_mean)

    def __str__(self) -> str:
        prompts = "prompts uniform {}-{}".format(*self.prompt)
        if self.geometric_mean is not None:
            outputs = (
                f"outputs geometric, mean {self.geometric_mean:g}, at most {LONGEST_GEOMETRIC}"
            )
        else:
            outputs = "outputs uniform {}-{}".format(*self.output)
        return f"{prompts}, {outputs}"

    def draw_output(self, rng: random.Random) -> int:
        """The length of one output."""
        if self.geometric_mean is None:
            return rng.randint(*self.output)
        length = 1
        while length < LONGEST_GEOMETRIC and rng.random() > 1 / self.geometric_mean:
            length += 1
        return length


def parse_range(text: str, name: str) -> tuple[int, int]:
    """`LOW-HIGH`, or one number for both. Raises ConfigError, which names the option."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is not None:
        low, high = int(match[1]), int(match[2] or match[1])
        if 1 <= low <= high:
            return low, high
    raise ConfigError(
        f"--{name} must be LOW-HIGH with 1 <= LOW <= HIGH, or one number, got {text!r}", param=name
    )


def with_room(config: EngineConfig) -> EngineConfig:
    """The KV pool as large as memory allows, if its size is not given: a CPU's default is smaller."""
    if config.kv_memory_share is None and resolve_device(config).type == "cpu":
        return replace(config, kv_memory_share=CPU_SHARE)
    return config


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a workload. It generates num_output tokens, whatever they are."""

    prompt: list[int]
    num_output: int


def draw_jobs(count: int, lengths: Lengths, vocab: int, seed: int = 0) -> list[Job]:
    """Random tokens in random lengths, the same for the same seed. Ids below 16 are left out: low
    ids are where tokenizers keep their special tokens."""
    rng = random.Random(seed)
    jobs = []
    for _ in range(count):
        prompt = [rng.randrange(16, vocab) for _ in range(rng.randint(*lengths.prompt))]
        jobs.append(Job(prompt, lengths.draw_output(rng)))
    return jobs


@dataclass(slots=True)
class Trace:
    """What a run took. first, gaps: seconds to the first token, and between tokens, of each request.
    outputs: what was generated, in the order of the jobs."""

    seconds: float = 0.0
    output_tokens: int = 0
    outputs: list[list[int]] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds


def run_jobs(
    engine: "LLMEngine", jobs: Sequence[Job], after_step: Callable[[], None] | None = None
) -> Trace:
    """Queue every job at once and step to the end. Raises YaieError if a request fails."""
    trace = Trace()
    requests = []
    begin = time.perf_counter()
    for job in jobs:
        params = SamplingParams(temperature=0, max_tokens=job.num_output, ignore_eos=True)
        requests += engine.add_request(job.prompt, params)
    last: dict[str, float] = {}
    while engine.has_work:
        outputs = engine.step()
        now = time.perf_counter()
        for output in outputs:
            raise_if_failed(output)
            num_tokens = len(output.token_ids)
            if output.request_id not in last:
                last[output.request_id] = now
                trace.first.append(now - begin)
                num_tokens -= 1
            # Tokens that come together share the time since those before them.
            trace.gaps += [(now - last[output.request_id]) / max(1, num_tokens)] * num_tokens
            last[output.request_id] = now
            trace.output_tokens += len(output.token_ids)
        if after_step is not None:
            after_step()
    trace.seconds = time.perf_counter() - begin
    trace.outputs = [request.output_token_ids for request in requests]
    return trace


def raise_if_failed(output: RequestOutput) -> None:
    """Raise YaieError if the request failed: figures without it would mean nothing."""
    if output.finish_reason is FinishReason.ERROR:
        raise YaieError(output.error or "a request failed")


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median, and the lowest and highest."""
    if len(values) == 1:
        return f"{values[0]:,.4g}{unit}"
    return f"{statistics.median(values):,.4g}{unit} ({min(values):,.4g} to {max(values):,.4g})"
