"""Conversations as packed windows of token ids, with a mask of what the tutor must learn to say.

A window is a row of whole documents, each opened by the BOS token, and padding at its end. The
documents of a window see their predecessors: learning that nothing before BOS matters is what
keeps the tutor sane at every position up to the context length.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pool
from multiprocessing.pool import AsyncResult

import numpy as np
from tokenizers import Tokenizer

from book.tutor.dialogues import Message, dialogues
from book.tutor.tokenizer import (
    BOS,
    CONTEXT_LENGTH,
    PAD,
    TURN_END,
    TURN_START,
    token_id,
)
from yaie.system.terminal import tracked

SHARD_DIALOGUES = 2000
"""Conversations per shard: a shard has its own seed, so the corpus is the same on any machine."""


@dataclass(frozen=True)
class Corpus:
    """`tokens` [windows, 2048] uint16; `learn` [windows, 2048] bool: tokens the loss counts."""

    tokens: np.ndarray
    learn: np.ndarray


def encode(tokenizer: Tokenizer, messages: list[Message]) -> tuple[list[int], list[bool]]:
    """Token ids of a conversation as the chat template renders it, and which of them to learn.

    Offered tools stand in the system message and calls in the assistant's, as `tool_use` writes them.
    """
    end = token_id(tokenizer, TURN_END)
    ids = [token_id(tokenizer, BOS)]
    learn = [False]
    for message in messages:
        head = tokenizer.encode(f"{TURN_START}{message['role']}\n").ids
        body = [*tokenizer.encode(message["content"]).ids, end]
        tail = tokenizer.encode("\n").ids
        spoken = message["role"] == "assistant"
        ids += head + body + tail
        learn += [False] * len(head) + [spoken] * len(body) + [False] * len(tail)
    return ids, learn


def _pack(documents: Iterator[tuple[list[int], list[bool]]], pad: int) -> Corpus:
    """Fill windows with whole documents, first come first packed; drop what exceeds a window."""
    rows: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    used = CONTEXT_LENGTH
    for ids, learn in documents:
        if len(ids) > CONTEXT_LENGTH:
            continue
        if used + len(ids) > CONTEXT_LENGTH:
            rows.append(np.full(CONTEXT_LENGTH, pad, dtype=np.uint16))
            masks.append(np.zeros(CONTEXT_LENGTH, dtype=bool))
            used = 0
        rows[-1][used : used + len(ids)] = ids
        masks[-1][used : used + len(ids)] = learn
        used += len(ids)
    return Corpus(np.stack(rows), np.stack(masks))


def _shard(task: tuple[str, int, float]) -> Corpus:
    """The shard with the given seed; the tokenizer travels to the process as its JSON."""
    serialised, seed, systems = task
    tokenizer = Tokenizer.from_str(serialised)
    documents = (encode(tokenizer, talk) for talk in dialogues(seed, SHARD_DIALOGUES, systems))
    return _pack(documents, token_id(tokenizer, PAD))


def build_corpus(
    tokenizer: Tokenizer, shards: int, seed: int, processes: int = 0, systems: float = 1.0
) -> Corpus:
    """Generate, encode and pack `shards` x 2000 conversations, on all processor cores by default.

    systems: as `dialogues` takes it.
    """
    tasks = [(tokenizer.to_str(), seed * 1_000_003 + shard, systems) for shard in range(shards)]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        parts = list(tracked(pool.map(_shard, tasks), "writing conversations", shards))
    return Corpus(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.learn for part in parts]),
    )


class ShardStream:
    """Shards one after the other without end, written by other processes while the model trains.

    Start it before CUDA is used in this process: its workers are forks. `ahead` shards are written in
    advance; their order and content do not depend on the number of processes. The workers are nice, so
    that they do not keep the training from launching its kernels.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        seed: int,
        processes: int = 0,
        ahead: int = 96,
        systems: float = 1.0,
    ) -> None:
        self._pool = Pool(processes or os.cpu_count() or 1, initializer=os.nice, initargs=(10,))
        self._serialised, self._seed, self._ahead = tokenizer.to_str(), seed, ahead
        self._systems = systems
        self._written: deque[AsyncResult[Corpus]] = deque()
        self.taken = 0
        self._fill()

    def _fill(self) -> None:
        while len(self._written) < self._ahead:
            shard = self._seed * 1_000_003 + self.taken + len(self._written)
            self._written.append(
                self._pool.apply_async(_shard, ((self._serialised, shard, self._systems),))
            )

    def has(self, shards: int) -> bool:
        """Whether so many shards can be taken without waiting."""
        return all(self._written[index].ready() for index in range(shards))

    def take(self, shards: int) -> Corpus:
        """The next shards as one corpus; waits for them."""
        parts = []
        for _ in range(shards):
            parts.append(self._written.popleft().get())
            self.taken += 1
            self._fill()
        return Corpus(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.learn for part in parts]),
        )

    def close(self) -> None:
        """End the processes at once; shards that nobody took are dropped."""
        self._pool.terminate()
        self._pool.join()
