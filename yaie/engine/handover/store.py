"""Blocks out of an engine's cache, and blocks of another engine into it.

Through the contracts of scheduler and cache alone: a request that never runs stands for the prefix. It
is admitted, which finds what is cached; or given room, declared computed, and filed.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts import KVCacheManager
from yaie.core.errors import PartError, YaieError
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.core.step import Arrays, StepInput, no_ints
from yaie.engine.asks.arrays import ints
from yaie.engine.machine import Machine
from yaie.engine.step.recovery import RecoveringMachine

OUTSIDE = -1
"""The number of a step that no plan has asked for."""
T = TypeVar("T")


class BlockStore:
    """Reads and writes an engine's cached prefixes, between two steps."""

    def __init__(
        self, machine: Callable[[], Machine | RecoveringMachine], block_size: int, keep_free: int
    ) -> None:
        """machine: it is another one after a learner's part has failed. keep_free: blocks that are left
        to what runs."""
        self.machine = machine
        self.block_size = block_size
        self._keep_free = keep_free
        self._numbers = itertools.count()

    def wanted(self, tokens: Sequence[int]) -> int:
        """Full blocks of a prompt that can come from elsewhere: its last token is computed here."""
        return (len(tokens) - 1) // self.block_size

    def cached(self, request: Request) -> int:
        """Leading blocks of a request's prompt that are here already."""
        return self._guarded(lambda cache: cache.cached_tokens(request) // self.block_size, 0)

    def read(self, tokens: Sequence[int], first: int) -> NDArray[np.uint8] | None:
        """Keys and values of a prompt's full blocks from `first` on; None if they are not cached."""
        count = self.wanted(tokens)

        def work(cache: KVCacheManager) -> NDArray[np.uint8] | None:
            alias = self._alias(tokens, count)
            try:
                if cache.admit(alias) < count * self.block_size:
                    return None
                blocks = cache.block_table(alias)[first:count]
                return self._run("leaving", {"blocks": ints(blocks)})["data"]
            finally:
                cache.free(alias, keep=False)

        return self._guarded(work, None) if first < count else None

    def write(self, tokens: Sequence[int], first: int, data: NDArray[np.uint8]) -> bool:
        """Cache a prompt's full blocks, of which `data` has those from `first` on. False, with nothing
        changed, if they do not join on to what is cached, or if there is no room."""
        count = self.wanted(tokens)

        def work(cache: KVCacheManager) -> bool:
            alias = self._alias(tokens, count)
            keep = False
            try:
                begin = cache.admit(alias) // self.block_size
                keep = first <= begin <= count and self._store(cache, alias, begin - first, data)
                return keep
            finally:
                cache.free(alias, keep=keep)

        return self._guarded(work, False)

    def _store(
        self, cache: KVCacheManager, alias: Request, skip: int, data: NDArray[np.uint8]
    ) -> bool:
        """Store what the cache lacks of the alias's prefix: `data` without its first `skip` blocks."""
        begin = alias.num_computed_tokens // self.block_size
        count = self.wanted(alias.token_ids)
        if begin == count:
            return True
        if not cache.allocate(alias, count * self.block_size, keep_free=self._keep_free):
            return False
        # Each layer has all of the blocks, those that are skipped among them.
        blocks = cache.block_table(alias)[begin:count]
        total = skip + len(blocks)
        sizes = data.reshape(-1) if not skip else self._without(data, skip, total)
        self._run("arriving", {"blocks": ints(blocks), "data": sizes})
        alias.num_computed_tokens = count * self.block_size
        cache.commit(alias)
        return True

    def _without(self, data: NDArray[np.uint8], skip: int, total: int) -> NDArray[np.uint8]:
        """The data of `total` blocks without those of the first `skip`."""
        layers = self.machine().kv_layers
        sizes = [layer.num_kv_heads * layer.head_dim for layer in layers for _ in ("K", "V")]
        width = len(data) // (total * self.block_size * sum(sizes))
        kept, at = [], 0
        for size in sizes:
            own = total * self.block_size * size * width
            kept.append(data[at : at + own].reshape(total, -1)[skip:].reshape(-1))
            at += own
        return np.concatenate(kept)

    def _alias(self, tokens: Sequence[int], count: int) -> Request:
        """A request that never runs, whose table can have the first `count` blocks of a prompt."""
        name = f"#blocks{next(self._numbers)}"
        return Request(name, list(tokens[: count * self.block_size + 1]), SamplingParams())

    def _run(self, name: str, asked: Arrays) -> Arrays:
        """What a step of no request is told of blocks. Raises YaieError if it fails."""
        none = no_ints()
        samples = np.empty(0, dtype=np.bool_)
        step = StepInput(OUTSIDE, none, none, none, samples, extras={name: asked})
        result = self.machine().worker.execute(step).result()
        if result.fault is not None:
            raise YaieError(f"blocks could not be moved: {result.fault.message}")
        return result.extras.get(name, {})

    def _guarded(self, work: Callable[[KVCacheManager], T], otherwise: T) -> T:
        """What `work` returns, or this if a learner's part fails, from which the machine recovers."""
        machine = self.machine()
        try:
            return machine.guarded(lambda: work(machine.cache))
        except PartError:
            return otherwise
