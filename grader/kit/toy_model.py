"""A model of integers: wrong or stale K and V show at once.

What a slot holds stands for K and V, which depend on every token before: a hash of the prefix. A step
writes the hashes of its tokens to their slots, then each request reads its whole sequence back through
its block table. A block that was overwritten, freed too early, not copied, or filed under other tokens
gives another hash.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from grader.kit.expect import Mismatch, claiming, expect
from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.request import Request

VOCAB = 5
_PRIME = 2**61 - 1
_EMPTY = 1
"""The hash of no token."""

STALE = (
    "A request attends to K and V of all its tokens, in the blocks of its table. What stands there now "
    "was computed for other tokens, or never: the block was given to another request, or skipped."
)
TWO_WRITERS = (
    "A block that two requests share is read by both; a request that writes needs one of its own."
)
UNKNOWN = "A step can compute the tokens that are known, and those that steps before it have drawn."


def prefix_hashes(token_ids: Sequence[int]) -> list[int]:
    """A hash for each prefix that ends at a token."""
    hashes, state = [], _EMPTY
    for token in token_ids:
        state = _longer(state, token)
        hashes.append(state)
    return hashes


def _longer(prefix_hash: int, token: int) -> int:
    return (prefix_hash * 1_000_003 + token + 1) % _PRIME


def next_token(prefix_hash: int, seed: int) -> int:
    return (prefix_hash * 31 + seed * 7919) % 1009 % VOCAB


def toy_output(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """The tokens that a right engine generates: no cache, everything from the start each time."""
    drawn: list[int] = []
    state = reduce(_longer, prompt, _EMPTY)
    for _ in range(count):
        drawn.append(next_token(state, seed))
        state = _longer(state, drawn[-1])
    return drawn


def toy_drafts(request: Request, count: int) -> list[int]:
    """Guesses for the tokens that follow; how many of them are right depends on the length so far."""
    wanted = min(count, request.max_tokens - request.num_output_tokens - 1)
    right = toy_output(request.token_ids, wanted, request.seed)
    num_right = request.num_tokens % (count + 1)
    return right[:num_right] + [(token + 1) % VOCAB for token in right[num_right:]]


@dataclass(frozen=True, slots=True)
class ToyStep:
    """A step that has been carried out; its result is read when it is asked for."""

    token_ids: list[list[int]]

    def result(self) -> StepOutcome:
        return StepOutcome(self.token_ids)


class ToyExecutor:
    """Carries out plans on dictionaries from slot to prefix hash, one after the other, as one device
    does. It knows the tokens that it drew before their results are read. num_computed: tokens in all.
    """

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._device: dict[int, int] = {}
        self._host: dict[int, int] = {}
        self._drawn: dict[Request, list[int]] = {}  # sequences, with the tokens that are unread
        self.num_computed = 0

    def execute(self, plan: StepPlan) -> ToyStep:
        """Begin a step. Raises Mismatch on wrong K and V."""
        return ToyStep(self.run(plan))

    @claiming("A share reads K and V of its own request's tokens, and writes to blocks of its own.")
    def run(self, plan: StepPlan) -> list[list[int]]:
        """The tokens that follow for each request that samples. Raises Mismatch on wrong K and V."""
        self._move(self._device, self._host, plan.swap_out)
        self._move(self._host, self._device, plan.swap_in)
        self._move(self._device, self._device, plan.copies)
        sequences = [self._sequence(item) for item in plan.scheduled]
        hashes = [prefix_hashes(token_ids) for token_ids in sequences]
        for item, right in zip(plan.scheduled, hashes, strict=True):
            written = right[item.start : item.start + item.num_tokens]
            self._device.update(zip(self.slots(item), written, strict=True))
        self.num_computed += plan.num_tokens
        self._expect_one_writer(plan)
        for item, right in zip(plan.scheduled, hashes, strict=True):
            self._check_cache(item, right)
        return [
            self._draw(item, token_ids)
            for item, token_ids in zip(plan.scheduled, sequences, strict=True)
            if item.samples
        ]

    def say(self, request: Request, index: int, token: int) -> int:
        """Output token `index` of a request; a subclass may have it say another than the model's."""
        return token

    def slots(self, item: ScheduledRequest, start: int | None = None) -> list[int]:
        """Where the tokens of a share are written. start: the first position, if not the share's."""
        positions = range(item.start if start is None else start, item.start + item.num_tokens)
        return [item.block_table[i // self._size] * self._size + i % self._size for i in positions]

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

    def _sequence(self, item: ScheduledRequest) -> list[int]:
        """All tokens up to the end of a share: known, drawn but unread, and its drafts."""
        request, end = item.request, item.start + item.num_tokens
        known = request.token_ids
        unread = self._drawn.get(request, [])[len(known) :][: request.num_output_placeholders]
        token_ids = [*known, *unread, *item.drafts]
        expect(
            end <= len(token_ids),
            f"{request.request_id} computes up to position {end - 1}, but has {len(token_ids)} tokens",
            why=UNKNOWN,
        )
        return token_ids[:end]

    def _check_cache(self, item: ScheduledRequest, wanted: list[int]) -> None:
        """Follow the block table: all K and V up to the end of the share must be there."""
        held = self.contents(self.slots(item, start=0))
        if held == wanted:
            return
        if wrong := [i for i in range(len(wanted)) if held[i] != wanted[i]]:
            raise Mismatch(
                f"{item.request.request_id} reads wrong K and V at positions {wrong} of its "
                f"{len(wanted)} tokens, through the block table {item.block_table}",
                why=STALE,
            )

    def _draw(self, item: ScheduledRequest, token_ids: list[int]) -> list[int]:
        """The tokens after the last one that is no draft: drafts as far as they are right, and one."""
        request, drafts = item.request, list(item.drafts)
        known = token_ids[: len(token_ids) - len(drafts)]
        drawn: list[int] = []
        while len(drawn) <= len(drafts) and drawn == drafts[: len(drawn)]:
            token = next_token(prefix_hashes([*known, *drawn])[-1], request.seed)
            index = len(known) + len(drawn) - request.num_prompt_tokens
            drawn.append(self.say(request, index, token))
        self._drawn[request] = [*known, *drawn]
        return drawn

    def _expect_one_writer(self, plan: StepPlan) -> None:
        writers = Counter(slot for item in plan.scheduled for slot in self.slots(item))
        twice = sorted(slot for slot, count in writers.items() if count > 1)
        if twice:
            names = [
                item.request.request_id
                for item in plan.scheduled
                if not set(twice).isdisjoint(self.slots(item))
            ]
            problem = f"slots {twice} are written twice in one step, by {names}"
            raise Mismatch(problem, why=TWO_WRITERS)
