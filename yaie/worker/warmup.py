"""Made-up steps, before any request comes: what they compile, take and give is known from then on.

    warm_up   one of every shape that makes a kernel differ, and the largest step there can be
    tried      decode steps, whose results tell whether two ways of computing them agree

Steps go through the worker like any other. Their tokens are all 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from yaie.core.step import Extras, NewSeats, StepInput, StepResult
from yaie.worker.progress import Progress
from yaie.worker.worker import Worker, sample_rows

MANY_TOKENS = 4096
"""From there on no kernel is cut into programs differently."""

PLAIN: dict[str, Any] = {"temperature": 1.0}
FLAVOURS: Sequence[dict[str, Any]] = (
    PLAIN,
    {"temperature": 0.0},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "repetition": 1.1, "presence": 0.5},
    {"temperature": 1.0, "logprobs": 2},
)
"""Sampling parameters for which different kernels draw."""


def warm_up(
    worker: Worker, token_budget: int, max_num_seqs: int, progress: Progress = iter
) -> None:
    """Compute the largest step, then those of every other kind. What a step stores goes to block 0.

    Raises RuntimeError with what a step broke on.
    """
    run, longest = Warmup(worker), worker.max_model_len

    def pieces(tokens: int, most: int) -> list[int]:
        return [min(most, tokens - at) for at in range(0, tokens, most)][:max_num_seqs]

    run.prompts(pieces(token_budget, longest), FLAVOURS[-1])
    run.decodes(max_num_seqs, FLAVOURS[-1])
    sizes = _sizes(min(token_budget, MANY_TOKENS))
    for size in progress([*sizes, *_sizes(max_num_seqs)]):
        if size in sizes:
            run.prompts(pieces(size, longest))
            if longest > 1:
                run.chunks(pieces(size, longest - 1))
                run.chunks(pieces(size, longest - 1), min(3, token_budget - size))
        if size <= max_num_seqs:
            run.decodes(size, PLAIN, [longest - 1] * size)
    draw_all(worker, max_num_seqs)


def _sizes(most: int) -> list[int]:
    """Powers of two up to `most`, their neighbours, and `most`: kernels differ by whether a number is 1
    or a multiple of 16, and by tiles that change with its powers of two."""
    powers = [2**i for i in range(most.bit_length())]
    near = {size + offset for size in powers for offset in (-1, 0, 1)}
    return sorted(size for size in near | {most} if 1 <= size <= most)


@torch.inference_mode()
def draw_all(worker: Worker, most: int) -> None:
    """Draw for every number of rows up to `most` with every filter: their kernels are few and quick."""
    logits = torch.zeros(most, worker.adapter.vocab_size, device=worker.device)
    seats = np.arange(most, dtype=np.int32)
    for flavour in FLAVOURS[:-1]:
        worker.batch.enter(_new_seats([1] * most, flavour))
        for count in range(1, most + 1):
            sample_rows(logits[:count], worker.batch.rows(seats[:count]), None, worker.sampler)


def tried(worker: Worker, most: int) -> list[StepResult]:
    """At most so many requests of different lengths, each in a block of its own, decoded plainly and
    with log-probabilities. What they leave is overwritten when seats and blocks are given out."""
    pool = worker.pool
    count = min(most, pool.num_blocks, worker.batch.nobody)
    longest = min(pool.block_size, worker.max_model_len) - 2
    if longest < 1:
        return []
    lengths = [max(1, longest * (i + 1) // (count + 1)) for i in range(count)]
    results = []
    for flavour in (PLAIN, {"temperature": 1.0, "logprobs": 2}):
        run = Warmup(worker)
        results.append(run.prompts(lengths, flavour, own_blocks=True))
        results += [run.decodes(count, starts=[at + later for at in lengths]) for later in (0, 1)]
    return results


class Warmup:
    """Sends steps to a worker, one after the other, and waits for each."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._step = 0
        self._flavour = PLAIN  # of the seats

    def prompts(
        self,
        lengths: Sequence[int],
        flavour: dict[str, Any] = PLAIN,
        *,
        own_blocks: bool = False,
    ) -> StepResult:
        """Whole prompts, for which a token is drawn each. Single ones come first, as in every step.

        own_blocks: whether each gets block i; all are in block 0 otherwise.
        """
        lengths, count = sorted(lengths), len(lengths)
        step = self._begin([0] * count, lengths)
        self._enter(step, lengths, flavour)
        if own_blocks:
            columns = self._worker.first_columns
            step.table_seats = np.tile(np.arange(count, dtype=np.int32), len(columns))
            step.table_columns = np.repeat(np.array(columns, dtype=np.int32), count)
            step.table_blocks = step.table_seats
        return self._run(step)

    def chunks(self, lengths: Sequence[int], decodes: int = 0) -> StepResult:
        """Chunks, each behind a token that is there already, after so many decodes."""
        decodes = min(decodes, self._worker.batch.nobody - len(lengths))
        lengths = [1] * decodes + sorted(lengths)
        known = [1] * decodes + [length + 1 for length in lengths[decodes:]]
        step = self._begin([1] * len(lengths), lengths)
        self._enter(step, known, PLAIN)
        return self._run(step)

    def decodes(
        self,
        count: int,
        flavour: dict[str, Any] | None = None,
        starts: Sequence[int] | None = None,
    ) -> StepResult:
        """A token for each of the first `count` seats, new ones with a prompt of one token if a flavour
        is given."""
        step = self._begin(starts or [min(1, self._worker.max_model_len - 1)] * count, [1] * count)
        if flavour is not None:
            self._enter(step, [1] * count, flavour)
        return self._run(step)

    def _begin(self, starts: Sequence[int], lengths: Sequence[int]) -> StepInput:
        count = len(lengths)
        self._step += 1
        return StepInput(
            step=self._step,
            seats=np.arange(count, dtype=np.int32),
            starts=np.array(starts, dtype=np.int32),
            num_tokens=np.array(lengths, dtype=np.int32),
            samples=np.ones(count, dtype=np.bool_),
        )

    def _enter(self, step: StepInput, lengths: Sequence[int], flavour: dict[str, Any]) -> None:
        step.new, self._flavour = _new_seats(lengths, flavour), flavour

    def _run(self, step: StepInput) -> StepResult:
        step.extras = _asked(len(step.seats), self._flavour)
        result = self._worker.execute(step).result()
        if result.fault is not None:
            raise WarmupError(result)
        return result


class WarmupError(RuntimeError):
    """A made-up step failed. fault: why."""

    def __init__(self, result: StepResult) -> None:
        assert result.fault is not None
        super().__init__(result.fault.message)
        self.fault = result.fault


def _new_seats(lengths: Sequence[int], flavour: dict[str, Any]) -> NewSeats:
    count = len(lengths)

    def floats(name: str, default: float) -> np.ndarray:
        return np.full(count, flavour.get(name, default), dtype=np.float32)

    new = NewSeats(
        seats=np.arange(count, dtype=np.int32),
        tokens=np.zeros(sum(lengths), dtype=np.int32),
        num_tokens=np.array(lengths, dtype=np.int32),
        num_prompt_tokens=np.array(lengths, dtype=np.int32),
        temperature=floats("temperature", 1),
        top_k=np.full(count, flavour.get("top_k", 0), dtype=np.int64),
        top_p=floats("top_p", 1),
        min_p=floats("min_p", 0),
        random_seeds=np.arange(count, dtype=np.int64),
        steps=np.zeros(count, dtype=np.int64),
    )
    if "repetition" in flavour:
        new.extras["penalties"] = {
            "rows": np.arange(count, dtype=np.int32),
            "presence": floats("presence", 0),
            "frequency": floats("frequency", 0),
            "repetition": floats("repetition", 1),
        }
    return new


def _asked(count: int, flavour: dict[str, Any]) -> Extras:
    """What a step of so many rows is asked for."""
    if "logprobs" not in flavour:
        return {}
    rows, none = np.arange(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
    num_top = np.full(count, flavour["logprobs"], dtype=np.int32)
    named = np.zeros((count, 0), dtype=np.int32)
    return {"logprobs": {"rows": rows, "num_top": num_top, "named": named, "num_named": none}}
