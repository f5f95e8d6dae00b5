"""The least time that a workload takes on this machine: what it must read, and what it must multiply.

Two ceilings are measured beside the figure: bytes per second, and floating-point operations per second.
From them and the model's sizes follows a time that no engine can be faster than if it computes each
prompt once and one token of each running request a step:

    prefill    every prompt's operations, at the product's rate; at least one reading of the weights
    a step     the larger of two: reading the weights once and the keys and values of everyone running,
               and reading and writing their states; multiplying the weights with a row for each, and
               each query with its keys

A prompt of p tokens costs 2 operations a weight and token, and in each layer 2 p^2 for each of a query
head's dimensions (half of all pairs, two products, a multiplication and an addition each). The embedding
is a look-up: where it is not the head's weight as well, it counts in neither.

Prefill and decode are added up. An engine that mixes both in a step can hide a part of the reading
behind the multiplying, so a figure beyond 100% is not excluded.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from yaie.bench.workload import Job
from yaie.worker.sizing import slot_bytes

READ_BYTES = 1 << 29
SIDES = (1024, 2048)
MOST_SECONDS = 0.8
"""Of each measurement on a CPU."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """bytes_per_second, operations_per_second: what the machine can do. what: how that was measured."""

    bytes_per_second: float
    operations_per_second: float
    what: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What a model reads and multiplies; of one rank, where ranks split it.

    weight_bytes: read in a step. layer_weights: multiplied with each token. head_weights: multiplied
    with each token that is followed by a draw. kv_bytes: of one token in all layers. query_width:
    query heads times their size, over all layers. state_bytes: of one sequence, however long it is.
    """

    weight_bytes: int
    layer_weights: int
    head_weights: int
    kv_bytes: int
    query_width: int
    state_bytes: int = 0

    @classmethod
    def of(cls, model: Any, longest: int, ranks: int = 1) -> "ModelCost | str":
        """Of a loaded model; why there is none, if not every step reads all weights and all keys.

        longest: sequence in the workload. ranks: that split each layer. A rank's model has the bytes and
        the key heads of its part, and the number of all parameters.
        """
        config = model.adapter.config.get_text_config()
        if any(getattr(config, name, None) for name in EXPERTS):
            return "no limit is known for a model of experts"
        window = getattr(config, "sliding_window", None)
        if window and getattr(config, "use_sliding_window", True) and window < longest:
            return "no limit is known for a model with sliding windows"
        layers, table = model.adapter.kv_layers, config.vocab_size * config.hidden_size // ranks
        is_tied = bool(getattr(config, "tie_word_embeddings", False))
        widths = sum(layer.num_kv_heads * layer.head_dim for layer in layers)
        return cls(
            weight_bytes=model.weight_bytes - (0 if is_tied else table * model.dtype.itemsize),
            layer_weights=model.num_parameters // ranks - table * (1 if is_tied else 2),
            head_weights=table,
            kv_bytes=2 * widths * model.dtype.itemsize,
            query_width=config.num_attention_heads * sum(one.head_dim for one in layers) // ranks,
            state_bytes=slot_bytes(model.adapter.state_layers),
        )

    def step_bytes(self, running: int, context: int) -> int:
        """Moved by a step of `running` requests, which have `context` tokens together."""
        return self.weight_bytes + self.kv_bytes * context + 2 * self.state_bytes * running


@dataclass(frozen=True, slots=True)
class Limit:
    """A model on a machine."""

    cost: ModelCost
    ceilings: Ceilings

    def prefill_seconds(self, lengths: Sequence[int]) -> float:
        """Of prompts of these lengths, each computed once, with logits for the last token."""
        cost = self.cost
        operations = 2 * cost.layer_weights * sum(lengths) + 2 * cost.head_weights * len(lengths)
        operations += 2 * cost.query_width * sum(length**2 for length in lengths)
        return self._slower(cost.weight_bytes, operations)

    def step_seconds(self, running: int, context: int) -> float:
        """Of a token for each of `running` requests, which have `context` tokens together."""
        cost = self.cost
        weights = cost.layer_weights + cost.head_weights
        operations = 2 * weights * running + 4 * cost.query_width * context
        return self._slower(cost.step_bytes(running, context), operations)

    def workload_seconds(self, jobs: Sequence[Job], max_num_seqs: int) -> float:
        """Of all of them, when up to max_num_seqs run at once and the next begins when one ends."""
        seconds = self.prefill_seconds([len(job.prompt) for job in jobs])
        # A prompt's computation gives the first token.
        waiting = [(len(job.prompt) + 1, job.num_output - 1) for job in reversed(jobs)]
        running: list[tuple[int, int]] = []
        while True:
            running = [(context + 1, left - 1) for context, left in running if left > 1]
            while waiting and len(running) < max_num_seqs:
                if (job := waiting.pop())[1] > 0:
                    running.append(job)
            if not running:
                return seconds
            seconds += self.step_seconds(len(running), sum(context for context, _ in running))

    def _slower(self, num_bytes: float, operations: float) -> float:
        reading = num_bytes / self.ceilings.bytes_per_second
        return max(reading, operations / self.ceilings.operations_per_second)


def measure_ceilings(device: str, dtype: torch.dtype) -> Ceilings:
    """Of a GPU a copy (read and written bytes both count) and a bfloat16 product; of a CPU a sum and a
    product in the model's dtype. The best of several: a ceiling is what the machine can do.
    """
    if device == "cuda":
        from yaie.bench.kernels.ceilings import ceilings

        found = ceilings()
        copy, product = found["GB/s"], found["TFLOP/s"]
        what = f"{copy['what']}, {product['what']}"
        return Ceilings(1e9 * copy["rate"], 1e12 * product["rate"], what)
    source = torch.ones(READ_BYTES // 4)
    read = READ_BYTES / _best(source.sum)
    rate = 0.0
    for side in SIDES:
        left, right = (torch.randn(side, side).to(dtype) for _ in range(2))
        rate = max(rate, 2 * side**3 / _best(partial(torch.mm, left, right)))
    kind = str(dtype).removeprefix("torch.")
    return Ceilings(read, rate, f"sum of {READ_BYTES >> 20} MiB, {kind} products of {SIDES}")


def _best(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call, of as many as fit."""
    best = float("inf")
    end = time.perf_counter() + MOST_SECONDS
    call()
    while True:
        begin = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return best
