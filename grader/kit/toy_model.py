"""A model of integers: wrong or stale K and V show at once.

What a slot holds stands for K and V, which depend on every token before: a hash of the prefix. A step
writes the hashes of its tokens to their slots, then each request reads its whole sequence back through
its block table. A block that was overwritten, freed too early, not copied, or filed under other tokens
gives another hash.
"""

from collections import Counter
from collections.abc import Sequence

from grader.kit.expect import Mismatch
from yaie.core.batch import ScheduledRequest, StepPlan

VOCAB = 5
_PRIME = 2**61 - 1

STALE = (
    "A request attends to K and V of all its tokens, in the blocks of its table. What stands there now "
    "was computed for other tokens, or never: the block was given to somebody else, or skipped."
)
TWO_WRITERS = "A block that two requests share is read by both; who writes needs one of its own."


def prefix_hashes(token_ids: Sequence[int]) -> list[int]:
    """A hash for each prefix that ends at a token."""
    hashes, state = [], 1
    for token in token_ids:
        state = (state * 1_000_003 + token + 1) % _PRIME
        hashes.append(state)
    return hashes


def next_token(prefix_hash: int, seed: int) -> int:
    return (prefix_hash * 31 + seed * 7919) % 1009 % VOCAB


def toy_output(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """The tokens that a right engine generates: no cache, everything from the start each time."""
    token_ids = list(prompt)
    for _ in range(count):
        token_ids.append(next_token(prefix_hashes(token_ids)[-1], seed))
    return token_ids[len(prompt) :]


class ToyRunner:
    """Carries out a plan on dictionaries from slot to prefix hash. num_computed: tokens in all."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._device: dict[int, int] = {}
        self._host: dict[int, int] = {}
        self.num_computed = 0

    def run(self, plan: StepPlan) -> list[int]:
        """The next token of each request that samples. Raises Mismatch on wrong K and V."""
        self._move(self._device, self._host, plan.swap_out)
        self._move(self._host, self._device, plan.swap_in)
        self._move(self._device, self._device, plan.copies)
        for item in plan.scheduled:
            written = prefix_hashes(item.request.token_ids)[item.start :][: item.num_tokens]
            self._device.update(zip(item.slots, written, strict=True))
        self.num_computed += plan.num_tokens
        _expect_one_writer(plan)
        last_hashes = [self._read(item) for item in plan.scheduled]
        return [
            next_token(last, item.request.seed)
            for item, last in zip(plan.scheduled, last_hashes, strict=True)
            if item.samples
        ]

    def contents(self, slots: Sequence[int]) -> list[int | None]:
        """What the slots hold."""
        return [self._device.get(slot) for slot in slots]

    def _move(
        self, source: dict[int, int], target: dict[int, int], pairs: list[tuple[int, int]]
    ) -> None:
        moved = {
            there * self._size + row: source.get(here * self._size + row)
            for here, there in pairs
            for row in range(self._size)
        }
        target.update({slot: value for slot, value in moved.items() if value is not None})

    def _read(self, item: ScheduledRequest) -> int:
        """Follow the block table; the hash of the last token that the request has computed now."""
        end = item.start + item.num_tokens
        slots = [
            item.block_table[i // self._size] * self._size + i % self._size for i in range(end)
        ]
        held = self.contents(slots)
        wanted = prefix_hashes(item.request.token_ids[:end])
        if wrong := [i for i in range(end) if held[i] != wanted[i]]:
            raise Mismatch(
                f"{item.request.request_id} reads wrong K and V at positions {wrong} of its "
                f"{end} tokens, through the block table {item.block_table}",
                why=STALE,
            )
        return wanted[-1]


def _expect_one_writer(plan: StepPlan) -> None:
    writers = Counter(slot for item in plan.scheduled for slot in item.slots)
    twice = sorted(slot for slot, count in writers.items() if count > 1)
    if twice:
        names = [i.request.request_id for i in plan.scheduled if not set(twice).isdisjoint(i.slots)]
        raise Mismatch(f"slots {twice} are written twice in one step, by {names}", why=TWO_WRITERS)
