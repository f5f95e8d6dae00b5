"""Answers of the second half of the path, computed another way: see again_first."""

from collections.abc import Callable
from math import ceil

from tests.book.exercises.again_first import (
    H200_BYTES,
    LLAMA_8B,
    LLAMA_8B_W,
    LLAMA_70B,
    LLAMA_70B_W,
    QWEN_8B,
    QWEN_8B_W,
    QWEN_32B,
    QWEN_32B_W,
    bisect,
    fitting,
    kv_bytes,
)

MLA = sum((512 + 64) * 2 for _ in range(61))


def masked_share(tokens: int, queries: int, keys: int) -> float:
    """Percent of the key tiles with a visible pair that have a hidden one too, tile by tile."""
    visited = masked = 0
    for first in range(0, tokens, queries):
        for key in range(0, tokens, keys):
            if key <= first + queries - 1:
                visited += 1
                masked += key + keys - 1 > first
    return 100 * masked / visited


def bank_passes(row: int) -> int:
    """The most lanes of eight that want the same bank, each four words from the start of its own row."""
    wanted = [(lane * row + word) % 32 for lane in range(8) for word in range(4)]
    return max(wanted.count(bank) for bank in range(32))


def shuffles(threads: int) -> int:
    """Halvings until one number is left: of 32 lanes, then of the warps."""
    count = 0
    for left in (32, threads // 32):
        while left > 1:
            left //= 2
            count += 1
    return count


def read_by(tokens: int, experts: int, chosen: int) -> float:
    """Experts that are read on average, token by token."""
    read = 0.0
    for _ in range(tokens):
        read += (experts - read) * chosen / experts
    return read


def speed(right: float, drafts: int, cost: float) -> float:
    """Tokens a step over its time: the step ends with each possible number of right drafts."""
    ends = [right**n * (1 - right) * (n + 1) for n in range(drafts)]
    return (sum(ends) + right**drafts * (drafts + 1)) / (1 + cost)


def ring(ranks: int, numbers: int) -> float:
    """Bytes that a rank sends in an all-reduce: a chunk in each round of both halves."""
    return sum(numbers / ranks * 2 for _ in range(2 * (ranks - 1)))


def state(layers: int, matrix: list[int], channels: int) -> int:
    """Bytes of a state: matrices in float32, and three inputs of each channel in 16 bits."""
    heads, rows, columns = matrix
    return sum(4 * heads * rows * columns + 2 * 3 * channels for _ in range(layers))


QWEN35_4B_STATE = state(24, [32, 128, 128], 16 * 128 + 16 * 128 + 32 * 128)
GRANITE4_H_MICRO_STATE = state(36, [64, 64, 128], 64 * 64 + 2 * 128)


GPT_OSS_EXPERTS = 36 * 4 * 3 * 2880**2


def _apart(number: int) -> float:
    """How far apart numbers with eight significant bits are there."""
    return max(1, 2 ** (number.bit_length() - 8))


AGAIN: dict[str, Callable[[], float]] = {
    "gpu-bytes-in-flight": lambda: 8e12 * 800e-9 / 148 / 1e3,
    "gpu-occupancy": lambda: (
        100 * min(fitting(65536, 384 * 80), fitting(228, 60)) * (384 / 32) / 64
    ),
    "gpu-tail": lambda: 100 * 200 / (132 * ceil(200 / 132)),
    "gpu-records": lambda: (
        100
        * 32
        * 4
        / (32 * len({byte // 32 for lane in range(32) for byte in range(12 * lane, 12 * lane + 4)}))
    ),
    "triton-ops-least-time-of-a-norm": lambda: 256 * 8192 * 4 / H200_BYTES * 1e6,
    "triton-ops-silu-of-a-prompt": lambda: 4096 * (51200 + 25600) * 2 / H200_BYTES * 1e6,
    "triton-ops-idle-lanes": lambda: 100 * (8192 - 5120) / 8192,
    "triton-ops-rows-of-an-expert": lambda: 100 * (256 * 8 / 128) / 64,
    "flash-attention-scores-in-memory": lambda: 64 * 2**15 * 2**15 * 2 / 1e9,
    "flash-attention-tiles-in-shared-memory": lambda: 3 * 128 * 256 * 2 / 1024,
    "flash-attention-share-of-attention": lambda: 100 / (1 + QWEN_32B_W / (64 * 64 * 128 * 32768)),
    "triton-flash-attention-masked-tiles": lambda: masked_share(4096, 128, 64),
    "triton-flash-attention-registers": lambda: (128 * 128 + 128 * 128) / (8 * 32),
    "triton-flash-attention-read-a-benchmark": lambda: 40 * 4 * 128 * (16384**2 / 2) / 6e-3 / 1e12,
    "triton-paged-attention-parts": lambda: next(n for n in range(99) if 4 * 8 * (n + 1) > 264),
    "triton-paged-attention-price-of-the-parts": lambda: (
        100 * (16 * 32 * 129 * 4 + 16 * 32 * 129 * 4) / (8192 * kv_bytes(1, 8, 128))
    ),
    "triton-paged-attention-one-layer": lambda: 32 * 8192 * LLAMA_8B / 32 / H200_BYTES * 1e6,
    "triton-sampling-a-sort": lambda: 16 * (64 * 151936 * 4) / H200_BYTES * 1e6,
    "triton-sampling-rounds": lambda: 100 * 0.3 * 0.3 * 0.3 * 0.3,
    "triton-sampling-share-of-the-step": lambda: 10 / 4.3,
    "cuda-memory-ops-store": lambda: 8192 * (QWEN_8B / 36) * 2 / H200_BYTES * 1e6,
    "cuda-memory-ops-launches": lambda: 4e-6 / (2 * 32768 / H200_BYTES),
    "cuda-memory-ops-swap": lambda: 512 * 16 * LLAMA_8B / 25e9 * 1e3,
    "cuda-ops-packs": lambda: 8192 * 2 / 16 / 256,
    "cuda-ops-exchanges": lambda: shuffles(512),
    "cuda-ops-small-batch": lambda: 100 * (64 * 5120 * 8 / H200_BYTES) / 2.6e-6,
    "cuda-flash-attention-bank-conflicts": lambda: bank_passes(80),
    "cuda-flash-attention-blocks-on-an-sm": lambda: fitting(228 * 1024, 128 * 132 * 4),
    "cuda-flash-attention-loads-a-multiplication": lambda: 100 * (32 / 8 * 16) / 128,
    "cuda-paged-attention-waves": lambda: 100 * 600 / 1056,
    "cuda-paged-attention-turns": lambda: len(range(0, 4096, 256 // 8 * 2)),
    "cuda-paged-attention-rate-by-bytes-in-flight": lambda: 132 * 512 * 32 / 0.7e-6 / 1e9,
    "profiling-launch-bound": lambda: 100 * 3 / 5,
    "profiling-share-of-a-copy": lambda: 100 * 134e6 / (45e-6 * H200_BYTES),
    "profiling-without-the-wait": lambda: 100 * (1 / 4.8 - 1 / 6) / (1 / 6),
    "cuda-graphs-padding": lambda: 100 * 126 / 256,
    "cuda-graphs-when-the-host-is-the-limit": lambda: next(
        n for n in range(1, 99) if QWEN_32B_W * 2 / H200_BYTES / n < 64 * 12 * 4e-6
    ),
    "cuda-graphs-the-longer-side": lambda: 100 * (3 - 2.2) / 2.2,
    "speculative-speed-up": lambda: speed(0.6, 3, 0.15),
    "speculative-worth-it": lambda: 100 * bisect(lambda a: speed(a, 1, 0.4) < 1, 0, 1),
    "speculative-a-block-at-once": lambda: speed(0.8, 8, 0.15),
    "speculative-experts-of-a-check": lambda: read_by(9, 256, 8) + 1,
    "quantization-on-a-card-of-24-gb": lambda: (
        (23e9 - QWEN_32B_W * 4.156 / 8 - 151936 * 5120 * 2) / QWEN_32B
    ),
    "quantization-groups-of-64": lambda: 16 * 64 / (64 * 4 + 20),
    "quantization-an-outlier": lambda: 100 * 20 / 254,
    "quantization-fp8-room": lambda: (
        (160e9 - LLAMA_70B_W - LLAMA_70B_W / 16384 * 4 - 128256 * 16384) / 1e9
    ),
    "tensor-parallel-ring-of-eight": lambda: 80 * 2 * ring(8, 8192) / 1e6,
    "tensor-parallel-a-rack": lambda: 2 + sum(8192 * 2 / 900e9 for _ in range(71)) * 1e6,
    "tensor-parallel-too-few-heads": lambda: 20e9 / kv_bytes(48, 1, 128),
    "tensor-parallel-four-cards": lambda: (
        QWEN_32B_W * 2 / H200_BYTES / (QWEN_32B_W / 2 / H200_BYTES + 128 * 8e-6)
    ),
    "tensor-parallel-bubble": lambda: next(m for m in range(999) if 7 / (m + 7) <= 0.1),
    "structured-output-masks": lambda: 256 * 18992 / 25e6,
    "structured-output-ask-again": lambda: 0.9995**-800,
    "structured-output-forced": lambda: 54 * 0.02,
    "experts-experts-read": lambda: read_by(16, 128, 8),
    "experts-one-draft": lambda: read_by(2, 256, 8) + 1,
    "experts-one-user": lambda: (
        H200_BYTES / (GPT_OSS_EXPERTS * 4.25 / 8 + (5.1e9 - GPT_OSS_EXPERTS) * 2)
    ),
    "experts-enough-rows": lambda: next(n for n in range(10**5) if n * 8 / 256 >= 160),
    "compressed-attention-a-million-tokens": lambda: fitting(90e9, 9_848e6),
    "compressed-attention-heavily-compressed": lambda: sum([1024] * (4096 + 128)) / 1e6,
    "compressed-attention-halved-prefill": lambda: 100 - 100 * 19 / 40,
    "latent-attention-long-contexts": lambda: fitting(80e9, 131072 * MLA),
    "latent-attention-latents-on-the-host": lambda: fitting(80e9, 61 * (65536 * 128 + 4096 * 1152)),
    "context-parallel-divided-context": lambda: (
        fitting(320e9, 32768 * MLA) - fitting(40e9, 32768 * MLA)
    ),
    "context-parallel-hidden-between-hosts": lambda: next(
        n for n in range(10**5) if n * 4 * 32 * 128 / 640e12 >= 4096 / 50e9
    ),
    "context-parallel-last-and-first": lambda: (
        sum(1 for k in range(8) for _ in (0, 1) if k < 7) + 1
    ),
    "latent-attention-windows": lambda: (
        sum(kv_bytes(1, 8, 64) * (32768, 128)[layer % 2] for layer in range(36)) / 1e9
    ),
    "kv-tiers-disk-for-a-large-model": lambda: (
        2 * (QWEN_32B_W - 151936 * 5120) * 7e9 / (400e12 * QWEN_32B)
    ),
    "kv-tiers-how-fast-a-link": lambda: QWEN_8B * 400e12 / (2 * (QWEN_8B_W - 151936 * 4096)) / 1e9,
    "kv-tiers-host-memory": lambda: fitting(1e12, 8000 * LLAMA_70B),
    "disaggregation-hand-over": lambda: 8192 * QWEN_32B / 25e6,
    "disaggregation-divide-the-devices": lambda: next(
        n for n in range(12) if n / 400 >= (11 - n) / 150
    ),
    "disaggregation-fast-enough": lambda: (
        10 * LLAMA_8B * 400e12 / (2 * (LLAMA_8B_W - 128256 * 4096)) / 1e9
    ),
    "adapters-rank-64": lambda: fitting(2e9, 32 * 2 * 64 * (4096 + 4096 + 4096 + 1024)),
    "adapters-active": lambda: 100 * (200 / 6) * 84e6 / (2 * LLAMA_8B_W),
    "adapters-without-adapters": lambda: ceil(50 / fitting(80e9, 2 * 8_030_261_248 + 10e9)),
    "agent-traffic-sessions-in-a-pool": lambda: fitting(110e9, 80000 * QWEN_8B),
    "agent-traffic-come-back-from-the-host": lambda: 80000 * QWEN_8B / 64e6,
    "agent-traffic-attention-of-a-turn": lambda: (
        100 / (1 + 2 * (LLAMA_8B_W - 128256 * 4096) / (524288 * 100000))
    ),
    "agent-traffic-answers-side-by-side": lambda: (
        1000 * sum([2 * LLAMA_8B_W, *[100000 * LLAMA_8B] * 8]) / H200_BYTES
    ),
    "routing-dealt-in-turn": lambda: 4000 + sum(300 / 8 + 4000 * 7 / 8 for _ in range(9)),
    "routing-when-to-leave": lambda: bisect(
        lambda a: 0.8 - 0.5 * (a - 20) / 20 > 0.5 * (a - 20) / 20, 0, 40
    ),
    "routing-copies-of-a-prompt": lambda: sum(10_000 * LLAMA_8B for _ in range(8)) / 1e9,
    "images-pixels-to-tokens": lambda: sum(
        1 for _ in range(0, 1280, 32) for _ in range(0, 960, 32)
    ),
    "images-vector-or-keys": lambda: QWEN_8B / (2 * 4096),
    "images-encoder-cache": lambda: fitting(2e9, 400 * 2 * 4096),
    "rollouts-last-two": lambda: sum(4000 / n * 5e-3 for n in (2, 1)),
    "rollouts-compute-again": lambda: (
        128 * sum(2 * (LLAMA_8B_W - 128256 * 4096) for _ in range(4000)) / 640e12
    ),
    "rollouts-take-turns": lambda: 2e3 * (2 * LLAMA_8B_W) / 64e9,
    "batch-invariance-ones": lambda: next(
        n for n in range(1, 999) if round((n + 1) / _apart(n)) * _apart(n) == n
    ),
    "batch-invariance-parted-answers": lambda: 100 * sum(1e-4 * 0.9999**k for k in range(300)),
    "batch-invariance-rate-lost": lambda: 32 * (400 - 250),
    "goodput-a-burst": lambda: next(t for t in range(99) if 40 + 28 * t <= 30 * t),
    "goodput-closed-loop": lambda: 64 / 20,
    "goodput-energy": lambda: 500 * 0.03,
    "goodput-price-of-a-good-request": lambda: 3 / (12 * 3.6),
    "profiling-best-possible": lambda: bisect(lambda f: 0.6 + 0.4 / f > 1 / 1.5, 1, 99),
    "profiling-share-of-the-limit": lambda: (
        100 * (2 * QWEN_8B_W + 65536 * QWEN_8B) / (7.4e-3 * H200_BYTES)
    ),
    "performance-million-tokens": lambda: 3.5 / (0.3 * 18000 * 3600 / 1e6),
    "performance-distance-to-the-limit": lambda: (
        100 * 9000 / 128 * (2 * LLAMA_8B_W + 256_000 * LLAMA_8B) / H200_BYTES
    ),
    "performance-slow-start": lambda: sum(5 for _ in range(108)),
    "state-cache-chats-beside-states": lambda: fitting(
        40e9, 2000 * kv_bytes(4, 8, 64) + GRANITE4_H_MICRO_STATE
    ),
    "state-cache-text-behind-checkpoints": lambda: 1024 * fitting(8e9, QWEN35_4B_STATE),
    "state-cache-a-page-for-both": lambda: next(
        block
        for block in range(16, 5000, 16)
        if block * kv_bytes(1, 8, 64) >= GRANITE4_H_MICRO_STATE / 36
    ),
    "state-cache-states-in-a-step": lambda: (
        sum(QWEN35_4B_STATE for _ in range(2 * 256)) / H200_BYTES * 1e3
    ),
    "state-cache-computed-again": lambda: (
        1e3 * sum(2 * 4.2e9 * tokens for tokens in range(4096)) / 4096 / 400e12
    ),
}
