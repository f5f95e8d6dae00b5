"""The four requests in a pool of ten blocks: tables, sharing, a fork, its copy, eviction, reuse.

Words stand for tokens, and the system prompt and the answers are shortened, so that a block of four
tokens can be read. What is taken, shared, copied and evicted is what the cache manager does.
"""

from typing import Any

import torch

from book.tools.traces import Part, Trace
from book.tools.traces._story import Story, StoryError, counted, listed
from yaie.bench.evidence.four import QUESTIONS
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

LAB = "paged_cache"
NUM_BLOCKS, BLOCK_SIZE = 10, 4
SYSTEM = "You are the tutor Answer briefly and plainly"
ANSWER_BEGINS = "▸"  # the mark that the chat template puts before an answer
ANSWERS = {
    "A": "The KV cache",
    "B": "Paged",
    "C": "Each",
    "C′": "Dividing",
}


def record(part: Part) -> Trace:
    """Twelve calls of the cache manager or so, with the pool after each."""
    pool = Pool(part)
    pool.note(
        f"A pool of {NUM_BLOCKS} blocks, {BLOCK_SIZE} tokens each. All are free: no table names one, "
        "and the radix tree knows of no prefix."
    )
    _the_first_comes(pool)
    _the_second_shares(pool)
    _both_grow(pool)
    _a_fork(pool)
    _one_goes_another_comes(pool)
    _asked_again(pool)
    return pool.story.trace


class Pool:
    """A cache manager at work, and what an attention kernel would have in each slot."""

    def __init__(self, part: Part) -> None:
        package = part("paged_cache")
        self.blocks = package.BlockManager(NUM_BLOCKS, BLOCK_SIZE)
        self.tree = part("radix_tree").RadixTree(BLOCK_SIZE)
        self.cache = package.KVCacheManager(self.blocks, self.tree)
        self.pool = package.KVPool([], NUM_BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu"))
        self.story = Story(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
        self.running: dict[str, Request] = {}
        self._slots = [""] * (NUM_BLOCKS * BLOCK_SIZE)
        self._words: list[str] = []
        self._count = 0

    def arrive(self, name: str, fork_of: str | None = None) -> Request:
        """Admit a request: its table begins with whatever it can share."""
        words = [*SYSTEM.split(), *QUESTIONS[name[0]].split(), ANSWER_BEGINS]
        self._count += 1
        request = Request(
            f"{name}{self._count}", [self._token(word) for word in words], SamplingParams()
        )
        request.fork_of = self.running[fork_of] if fork_of else None
        self.cache.admit(request)
        request.status = RequestStatus.RUNNING
        self.running[name] = request
        return request

    def make_room(self, name: str, answer: str = "") -> list[tuple[int, int]]:
        """Get blocks for all of a request's tokens and `answer`, a new one; returns what is copied."""
        request = self.running[name]
        if answer:
            request.token_ids.append(self._token(answer))
        if not self.cache.allocate(request, request.num_tokens):
            raise StoryError(
                f"allocate refused room for {request.num_tokens} tokens of {name}; free or "
                f"evictable: {self.cache.num_available_blocks} blocks"
            )
        copies: list[tuple[int, int]] = self.cache.take_moves()[2]
        for old, fresh in copies:
            self._slots[_rows(fresh)] = self._slots[_rows(old)]
        return copies

    def compute(self, name: str) -> list[int]:
        """Write the tokens that are not computed yet, file full blocks; returns the blocks written."""
        request = self.running[name]
        start, end = request.num_computed_tokens, request.num_tokens
        slots = self._slots_of(name, start, end)
        for slot, token in zip(slots, request.token_ids[start:], strict=True):
            self._slots[slot] = self._words[token]
        request.num_computed_tokens = end
        self.cache.commit(request)
        return sorted({slot // BLOCK_SIZE for slot in slots})

    def _slots_of(self, name: str, start: int, end: int) -> list[int]:
        """Where the request's tokens [start, end) lie."""
        table = torch.tensor([self.table(name)], dtype=torch.int32)
        positions = torch.arange(start, end)
        slots: list[int] = self.pool.slot_mapping(table, 0 * positions, positions).tolist()
        return slots

    def answer(self, *names: str) -> None:
        """One step in which each of these requests computes one token of its answer."""
        for name in names:
            request = self.running[name]
            word = ANSWERS[name].split()[request.num_output_tokens]
            self.make_room(name, word)
            self.compute(name)

    def end(self, name: str) -> None:
        """A request is done; what it computed stays cached."""
        request = self.running.pop(name)
        request.status = RequestStatus.FINISHED
        self.cache.free(request)

    def table(self, name: str) -> list[int]:
        return list(self.cache.block_table(self.running[name]))

    def refs(self, block: int) -> int:
        count: int = self.blocks.ref_count(block)
        return count

    def free_blocks(self) -> list[int]:
        return [block for block in range(NUM_BLOCKS) if not self.refs(block)]

    def cached_blocks(self) -> list[int]:
        """In the tree, and in no table."""
        in_use = {block for name in self.running for block in self.table(name)}
        return sorted(set(self.tree.all_blocks()) - in_use)

    def note(self, say: str, **marks: Any) -> None:
        """Keep the pool as it stands. marks: wrote, gone: lists of blocks; copied: [[old, new]]."""
        for block in self.free_blocks():
            self._slots[_rows(block)] = [""] * BLOCK_SIZE
        self.story.add(
            say,
            tables={name: self.table(name) for name in self.running},
            tokens={name: request.num_computed_tokens for name, request in self.running.items()},
            refs=[self.refs(block) for block in range(NUM_BLOCKS)],
            tree=sorted(self.tree.all_blocks()),
            slots=[self._slots[_rows(block)] for block in range(NUM_BLOCKS)],
            **marks,
        )

    def _token(self, word: str) -> int:
        if word not in self._words:
            self._words.append(word)
        return self._words.index(word)


def _rows(block: int) -> slice:
    return slice(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE)


def _the_first_comes(pool: Pool) -> None:
    a = pool.arrive("A")
    pool.make_room("A")
    table = pool.table("A")
    pool.note(
        f"A comes with {a.num_tokens} tokens and finds none of them cached. It gets "
        f"{listed(table, 'block')}; the last one will have room left.",
        wrote=table,
    )
    wrote = pool.compute("A")
    filed = sorted(pool.tree.all_blocks())
    pool.note(
        f"A's prompt is computed. The blocks that are full, {listed(filed)}, are filed in the tree, "
        "which counts as one more reference to each.",
        wrote=wrote,
    )


def _the_second_shares(pool: Pool) -> None:
    b = pool.arrive("B")
    table = pool.table("B")
    pool.note(
        f"B comes. Its first {counted(b.num_computed_tokens, 'token')} are those of A, so its table "
        f"begins with {listed(table, 'block')}: nothing is computed for them, and nothing is copied."
    )
    pool.make_room("B")
    fresh = pool.table("B")[len(table) :]
    wrote = pool.compute("B")
    pool.note(
        f"The rest of B's prompt is computed into {listed(fresh, 'block')}. Its question begins as A's "
        "does, but its third block is not the same as a whole, so it is not shared.",
        wrote=wrote,
    )


def _both_grow(pool: Pool) -> None:
    pool.answer("A", "B")
    pool.note(
        "A and B compute a token of their answers. Both last blocks have room: no block is taken.",
        wrote=[pool.table("A")[-1], pool.table("B")[-1]],
    )
    pool.answer("A")
    before = pool.table("A")
    pool.answer("A")
    fresh = pool.table("A")[len(before) :]
    pool.note(
        f"A goes on. Block {before[-1]} is full after 16 tokens and is filed; the 17th needs a new one, "
        f"{listed(fresh)}. A table grows by one block at a time, from anywhere in the pool.",
        wrote=[*before[-1:], *fresh],
    )


def _a_fork(pool: Pool) -> None:
    pool.arrive("C")
    pool.make_room("C")
    wrote = pool.compute("C")
    pool.note(
        f"C comes and asks for two answers (n = 2). Its prompt is computed once, into "
        f"{listed(wrote, 'block')} after the shared ones.",
        wrote=wrote,
    )
    pool.arrive("C′", fork_of="C")
    last = pool.table("C′")[-1]
    pool.note(
        f"The second answer, C′, is a fork: its table is {listed(pool.table('C′'))}, as C's. "
        f"Block {last} is not full and has {counted(pool.refs(last), 'reference')}: both will want to "
        "write there."
    )
    copies = pool.make_room("C′")
    wrote = pool.compute("C′")
    told = " and ".join(f"block {old} is copied to {new}" for old, new in copies) or "nothing is"
    pool.note(
        "C′ computes the prompt's last token itself, to have logits to sample from. C holds that block "
        f"too, so {told} first, and the table of C′ alone changes: copy-on-write. The full blocks "
        "stay shared; no request writes to them.",
        wrote=wrote,
        copied=[list(pair) for pair in copies],
    )
    pool.answer("C", "C′")
    pool.note(
        "C and C′ each compute a first token, and not the same one. Each has its own last block now; "
        "no further copy is needed.",
        wrote=[pool.table("C")[-1], pool.table("C′")[-1]],
    )


def _one_goes_another_comes(pool: Pool) -> None:
    table = pool.table("A")
    pool.end("A")
    free = [block for block in table if not pool.refs(block)]
    pool.note(
        f"A is done. {listed(free, 'Block')} had room left, so no other text can reuse it: it is free. "
        f"{listed(pool.cached_blocks(), 'Block')} are in no table any more, but stay cached in the "
        "tree until a request needs the room."
    )
    cached, free = pool.cached_blocks(), pool.free_blocks()
    d = pool.arrive("D")
    found = d.num_computed_tokens
    pool.make_room("D")
    gone = [block for block in cached if block in pool.table("D")]
    wrote = pool.compute("D")
    pool.note(
        f"D comes. {counted(found, 'token')} are cached; for the rest it needs "
        f"{counted(len(wrote), 'block')}, and {listed(free)} alone is free. {listed(gone, 'Block')}, "
        "the end of A's answer, is evicted: what is least recently used goes first, from its end.",
        wrote=wrote,
        gone=gone,
    )


def _asked_again(pool: Pool) -> None:
    before = pool.cached_blocks()
    pool.end("B")
    more = [block for block in pool.cached_blocks() if block not in before]
    pool.note(
        f"B is done. {listed(more, 'Block')} with its question stays cached, beside {listed(before)} "
        f"with A's; {listed(pool.free_blocks(), 'block')} is free."
    )
    a = pool.arrive("A")
    found, length = a.num_computed_tokens, a.num_tokens
    pool.make_room("A")
    wrote = pool.compute("A")
    pool.note(
        f"Another client asks A's question again. {found} of its {length} tokens are still cached, its "
        f"question among them; {counted(length - found, 'token')} must be computed, in "
        f"{listed(wrote, 'block')}.",
        wrote=wrote,
    )
