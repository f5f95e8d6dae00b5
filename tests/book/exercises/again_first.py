"""Answers of the first half of the path, computed another way: plain numbers, and by counting.

No expression, no table of models and no unit of the book is used here.
"""

from collections.abc import Callable

H200_BYTES, H200_FLOPS = 4.274e12, 679e12


def kv_bytes(layers: int, kv_heads: int, head: int) -> int:
    """Bytes of a token in bfloat16, added up layer by layer."""
    return sum(len(("key", "value")) * kv_heads * head * 2 for _ in range(layers))


QWEN_06B, QWEN_8B, QWEN_32B = kv_bytes(28, 8, 128), kv_bytes(36, 8, 128), kv_bytes(64, 8, 128)
LLAMA_8B, LLAMA_70B = kv_bytes(32, 8, 128), kv_bytes(80, 8, 128)


def linear(layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int) -> int:
    """Weights that a token is multiplied with; heads of 128."""
    a_layer = [hidden * heads * 128] * 2 + [hidden * kv_heads * 128] * 2 + [hidden * ffn] * 3
    return layers * sum(a_layer) + hidden * vocab


QWEN_8B_W = linear(36, 4096, 12288, 32, 8, 151936)
QWEN_32B_W = linear(64, 5120, 25600, 64, 8, 151936)
LLAMA_8B_W = linear(32, 4096, 14336, 32, 8, 128256)
LLAMA_70B_W = linear(80, 8192, 28672, 64, 8, 128256)


def fitting(room: float, piece: float) -> int:
    """How many pieces fit, laid one after the other."""
    count = 0
    while (count + 1) * piece <= room:
        count += 1
    return count


def blocks_of(tokens: int, block: int = 16) -> int:
    """Blocks that hold so many tokens."""
    return len(range(0, tokens, block))


def shared_blocks(requests: int, shared: int, own: int) -> int:
    """Different blocks of all requests: those that end in the shared part are the same."""
    used = {
        ("all" if end <= shared else request, end)
        for request in range(requests)
        for end in range(16, shared + own + 16, 16)
    }
    return len(used)


def conversation(turns: int, question: int, answer: int) -> int:
    """Prompt tokens, turn by turn."""
    total = history = 0
    for _ in range(turns):
        total += history + question
        history += question + answer
    return total


def bisect(wrong_until: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition turns, between two numbers."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if wrong_until(middle) else (low, middle)
    return low


AGAIN: dict[str, Callable[[], float]] = {
    "inference-one-person": lambda: 1 / (QWEN_32B_W * 2 / H200_BYTES),
    "inference-first-token": lambda: 1000 * sum([2 * QWEN_32B_W / H200_FLOPS] * 4000),
    "inference-price": lambda: 3 * (1e6 / (20 * 60) / 3600),
    "roofline-border-at-eight-bits": lambda: bisect(
        lambda rows: 2 * rows / H200_FLOPS < 1 / H200_BYTES, 0, 1000
    ),
    "roofline-laptop": lambda: 100e9 / (QWEN_8B_W * 4.5 / 8),
    "roofline-room-for-a-chunk": lambda: (
        bisect(lambda rows: 2 * rows / H200_FLOPS < 2 / H200_BYTES, 0, 1000) - 48
    ),
    "sampler-logits-to-the-host": lambda: 64 * 128256 * 4 / 25e6,
    "sampler-tail": lambda: 100 * bisect(lambda tail: (1 - tail) ** 400 > 0.9, 0, 0.1),
    "sampler-cooler": lambda: 100 * 3**4 / (3**4 + 1**4),
    "transformer-share-of-the-feed-forward": lambda: (
        100 * (3 * 12288) / (3 * 12288 + 32 * 128 + 8 * 128 + 8 * 128 + 4096)
    ),
    "transformer-attention-overtakes": lambda: QWEN_8B_W * 2 / (36 * 32 * 2 * (2 * 128)),
    "transformer-embeddings": lambda: 100 * 151936 * 1024 / 596_049_920,
    "kv-cache-chats-in-a-pool": lambda: fitting(40e9, 8000 * QWEN_8B),
    "kv-cache-longest-context": lambda: (0.9 * 160e9 - 2 * 32_762_123_264) / QWEN_32B,
    "kv-cache-outweighs-the-model": lambda: 2 * 596_049_920 / QWEN_06B,
    "kv-cache-weights-equal-cache": lambda: QWEN_8B_W * 2 / (16384 * QWEN_8B),
    "paging-short-requests": lambda: 100 * (sum(range(16)) / 16) / (60 + sum(range(16)) / 16),
    "paging-tables": lambda: 256 * blocks_of(32768) * 4 / 1e6,
    "paging-blocks": lambda: fitting(60e9, 16 * QWEN_32B),
    "paged-cache-sharing": lambda: shared_blocks(64, 1500, 500),
    "paged-cache-eight-answers": lambda: blocks_of(1000) + 7,
    "paged-cache-swap-or-recompute": lambda: (
        (2 * LLAMA_8B_W / H200_FLOPS) / (LLAMA_8B / 25e9 + LLAMA_8B / 25e9)
    ),
    "paged-cache-admission": lambda: 16 * len(range(20, 150)),
    "radix-tree-hit-rate": lambda: 100 * (1200 / 1500) * (199 / 200),
    "radix-tree-conversation": lambda: conversation(10, 100, 300),
    "radix-tree-how-long-a-prefix-lives": lambda: 10_000 / 40 / 30,
    "radix-attention-read-once": lambda: sum([4200] * 64) / (4000 + sum([200] * 64)),
    "radix-attention-rectangle": lambda: 100 * (512 + 90 + 30 + 60) / (63 * 512),
    "radix-attention-prefix-found": lambda: prefill_work(0, 8000) / prefill_work(7968, 8000),
    "batching-in-flight": lambda: 12 * 250 / 50,
    "batching-one-long-answer": lambda: 100 * 1300 / 3600,
    "batching-enough-requests": lambda: bisect(lambda n: n / (8 + 0.05 * n) < 0.8 / 0.05, 0, 1e5),
    "scheduler-largest-chunk": lambda: (30e-3 - 12e-3) / 20e-6,
    "scheduler-steps-of-a-prompt": lambda: len(range(0, 12000, 1024 - 48)),
    "scheduler-overload": lambda: next(t for t in range(1000) if 40 * t - 36 * t >= 200),
    "engine-detokenize": lambda: 64 * 2000 * 0.11e-3,
    "engine-held-back": lambda: len(range(0, 12, 4)) * 15,
    "engine-overlap": lambda: 100 * ((1 / 8) / (1 / 11) - 1),
    "api-server-events": lambda: 2000 * 40 * 230 / 1e6,
    "api-server-how-long-a-queue": lambda: 3 / (1 / 25),
    "api-server-slow-readers": lambda: 2000 * 2000 * 230 / 1e6,
}


def prefill_work(start: int, end: int) -> float:
    """FLOPs of Qwen3 8B for the tokens from start to end, each of which sees those before it."""
    attention = sum(4 * 36 * 32 * 128 * (before + 0.5) for before in range(start, end))
    return 2 * QWEN_8B_W * (end - start) + attention
