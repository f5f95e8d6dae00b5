"""The requests of each workload. The same seed draws the same ones, for us and for every peer."""

import random
from collections.abc import Sequence

from yaie.bench.throughput.asked import Asked
from yaie.bench.workload import Job, Lengths, draw_jobs

NANO_LAST_ID = 10_000
TEMPERATURES = {"random": 0.0, "nano": 0.6, "fixed": 0.0, "prefix": 0.0, "serve": 0.6}


def draw(asked: Asked, vocab_size: int, seed: int) -> list[Job]:
    """The requests of workload random, nano or serve."""
    if asked.workload in ("nano", "serve"):
        return nano_jobs(asked.requests, asked.lengths, vocab_size, seed)
    return draw_jobs(asked.requests, asked.lengths, vocab_size, seed)


def nano_jobs(count: int, lengths: Lengths, vocab_size: int, seed: int) -> list[Job]:
    """Drawn in the order of nano-vllm's `bench.py`: every prompt (its length, then its ids), then every
    output's length. As there, 256 requests of 100 to 1,024 tokens with seed 0 are 142,827 tokens in and
    133,966 out. Ids end at 10,000, or with the vocabulary if that is smaller.
    """
    rng = random.Random(seed)
    last = min(NANO_LAST_ID, vocab_size - 1)
    prompts = [
        [rng.randint(0, last) for _ in range(rng.randint(*lengths.prompt))] for _ in range(count)
    ]
    return [Job(prompt, rng.randint(*lengths.output)) for prompt in prompts]


def fixed_jobs(
    batch: int, prompt_tokens: int, output_tokens: int, vocab_size: int, seed: int
) -> list[Job]:
    """Prompts of one length that share nothing."""
    lengths = Lengths((prompt_tokens, prompt_tokens), (output_tokens, output_tokens))
    return draw_jobs(batch, lengths, vocab_size, seed)


def prefix_jobs(asked: Asked, vocab_size: int, seed: int, *, shares: bool) -> list[Job]:
    """Groups of prompts with a common beginning, one of each group in turn, as when clients with a
    system prompt each ask at the same time. shares: otherwise as long, with nothing in common.
    """
    rng = random.Random(seed)
    (outputs, _) = asked.lengths.output

    def ids(count: int) -> list[int]:
        return [rng.randrange(16, vocab_size) for _ in range(count)]

    prefixes = [ids(asked.shared_tokens) for _ in range(asked.groups)]
    jobs = []
    for _ in range(asked.group_size):
        for prefix in prefixes:
            beginning = prefix if shares else ids(asked.shared_tokens)
            jobs.append(Job(beginning + ids(asked.own_tokens), outputs))
    return jobs


def ideal_hit_rate(asked: Asked, block_size: int) -> float:
    """The share of all prompt tokens that a cache finds which computes each prefix once: of every group
    all but the first request find the whole blocks of the prefix."""
    found = asked.shared_tokens // block_size * block_size
    length = asked.shared_tokens + asked.own_tokens
    return (asked.group_size - 1) / asked.group_size * found / length


def static_bound(jobs: Sequence[Job], batch: int) -> dict[str, float]:
    """What continuous batching can gain over static at most, from the lengths alone.

    Both draw `useful` tokens. Static batches of `batch`, in order of arrival, compute `computed`: each
    of a batch's rows as often as its longest output needs. If a step cost as much as it has rows, the
    gain would be their ratio; part of a step costs the same for any number of rows, so it is less.
    """
    outputs = [job.num_output for job in jobs]
    batches = [outputs[start : start + batch] for start in range(0, len(outputs), batch)]
    useful, computed = sum(outputs), sum(len(rows) * max(rows) for rows in batches)
    return {"useful": useful, "computed": computed, "ratio": computed / useful}


def described(asked: Asked) -> str:
    """The workload in words, for the table and the file."""
    lengths, seeds = asked.lengths, ", ".join(map(str, asked.seeds))
    ends = f"end of sequence ignored, seeds {seeds}"
    if asked.workload == "serve":
        coming = "at once" if asked.rate is None else f"at {asked.rate:g} a second (Poisson)"
        return (
            f"{asked.requests} streams {coming}, as in nano-vllm's bench; {lengths}; "
            f"temperature {TEMPERATURES['serve']:g}, {ends}"
        )
    if asked.workload == "nano":
        return (
            f"{asked.requests} requests at once as in nano-vllm's bench; {lengths}; "
            f"temperature {TEMPERATURES['nano']:g}, {ends}"
        )
    if asked.workload == "fixed":
        return (
            f"prompts of {lengths.prompt[0]:,} tokens, all at once; then {lengths.output[0]} steps in "
            f"which each gains a token; greedy, {ends}"
        )
    if asked.workload == "prefix":
        return (
            f"{asked.groups} groups of {asked.group_size} requests at once, one of each group in turn; "
            f"{asked.shared_tokens:,} shared and {asked.own_tokens} own tokens, "
            f"{lengths.output[0]} generated; greedy, {ends}"
        )
    return f"{asked.requests} requests at once; {lengths}; greedy, {ends}"
