"""Sums about the KV cache, with worked steps: a grid of questions, a tenth of it held out.

    bytes per token = 2 x layers x KV heads x head dimension x bytes per number

The steps multiply one factor at a time: each product occurs in many combinations, so that a model
of a few million weights can be right on a combination it has never seen.
"""

import random
from dataclasses import dataclass

from book.tutor.glossary import load_phrasings
from book.tutor.templates import sample

LAYERS = (8, 12, 16, 24, 28, 32, 36, 40, 48, 64, 80)
KV_HEADS = (1, 2, 4, 8, 16, 32)
HEAD_DIMS = (32, 64, 128, 256)
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp16": 2, "bf16": 2, "FP8": 1, "INT8": 1}
TOKENS = (16, 32, 64, 100, 128, 256, 512, 1000, 1024, 2000, 2048, 4096, 8192)
BLOCK_SIZES = (8, 16, 32, 64)
MAX_BLOCK_TOKENS = 1024
MEMORY_GIB = (1, 2, 4, 8, 10, 16, 20, 24, 32, 40, 64, 80)
KIB = 1024
KINDS = ("per_token", "total", "blocks", "fit")


@dataclass(frozen=True)
class Sum:
    """A question about the KV cache and its worked answer."""

    question: str
    answer: str
    held_out: bool


@dataclass(frozen=True)
class Shape:
    """What a model's KV cache size depends on."""

    layers: int
    heads: int
    dim: int
    bytes: int

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.heads * self.dim * self.bytes

    @property
    def held_out(self) -> bool:
        """A fixed tenth of the grid, spread over all rows and columns."""
        row = LAYERS.index(self.layers) * 7 + KV_HEADS.index(self.heads) * 3
        return (row + HEAD_DIMS.index(self.dim) * 5 + self.bytes) % 10 == 0

    def steps(self) -> str:
        """'2 x 8 = 16, 16 x 4 = 64, ... bytes per token, which is 16 KiB'"""
        product = 2
        steps = []
        for factor in (self.layers, self.heads, self.dim, self.bytes):
            steps.append(f"{product} x {factor} = {product * factor}")
            product *= factor
        text = ", ".join(steps) + " bytes per token"
        return f"{text}, which is {product // KIB} KiB" if product % KIB == 0 else text


def _random_shape(rng: random.Random) -> Shape:
    return Shape(
        rng.choice(LAYERS), rng.choice(KV_HEADS), rng.choice(HEAD_DIMS), rng.choice((1, 2, 2, 2, 4))
    )


def _describe(shape: Shape, rng: random.Random) -> tuple[str, str]:
    """The shape in words, and what the answer must say about a width that was left open."""
    phrasings = load_phrasings("arithmetic")
    if shape.bytes == 2 and rng.random() < 0.3:
        width, note = "", "With 2 bytes per number, "
    else:
        names = [name for name, size in DTYPES.items() if size == shape.bytes]
        width = sample(rng.choice(phrasings["width"]), rng)
        width = width.replace("{bytes}", str(shape.bytes)).replace("{dtype}", rng.choice(names))
        # `sample` trims the blank in front of " in bfloat16".
        width = width if width.startswith(",") else f" {width}"
        note = ""
    text = sample(rng.choice(phrasings["model"]), rng)
    for name in ("layers", "heads", "dim"):
        text = text.replace(f"{{{name}}}", str(getattr(shape, name)))
    return text.replace("{width}", width), note


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def per_token(shape: Shape, rng: random.Random) -> Sum:
    """Bytes of KV cache that one token takes."""
    model, note = _describe(shape, rng)
    question = sample(rng.choice(load_phrasings("arithmetic")["per_token"]), rng)
    return Sum(question.replace("{model}", model), f"{note}{shape.steps()}.", shape.held_out)


def total(shape: Shape, tokens: int, rng: random.Random) -> Sum:
    """Memory of a number of tokens; the bytes per token must be whole KiB."""
    model, note = _describe(shape, rng)
    question = sample(rng.choice(load_phrasings("arithmetic")["total"]), rng)
    per_token_kib = shape.bytes_per_token // KIB
    kib = tokens * per_token_kib
    answer = f"{note}{shape.steps()}. {tokens} x {per_token_kib} KiB = {kib} KiB"
    if kib % KIB == 0:
        answer += f", which is {kib // KIB} MiB"
    question = question.replace("{model}", model).replace("{tokens}", str(tokens))
    return Sum(question, f"{answer}.", shape.held_out)


def blocks(tokens: int, size: int, rng: random.Random) -> Sum:
    """Blocks that a sequence needs: the fewest whose slots are enough."""
    question = sample(rng.choice(load_phrasings("arithmetic")["blocks"]), rng)
    question = question.replace("{tokens}", str(tokens)).replace("{size}", str(size))
    needed = -(-tokens // size)
    answer = f"{needed} x {size} = {needed * size} is enough: {_count(needed, 'block')}."
    if needed > 1:
        below = needed - 1
        answer = f"{below} x {size} = {below * size} is too few, {answer}"
    return Sum(question, answer, (tokens * 3 + size) % 10 == 0)


def fit(shape: Shape, memory_gib: int, rng: random.Random) -> Sum:
    """Tokens that fit in memory; the bytes per token must be a power of two of at least 1 KiB."""
    model, note = _describe(shape, rng)
    question = sample(rng.choice(load_phrasings("arithmetic")["fit"]), rng)
    per_token_kib = shape.bytes_per_token // KIB
    per_gib = KIB * KIB // per_token_kib
    answer = (
        f"{note}{shape.steps()}. 1 GiB is 1048576 KiB and holds 1048576 / {per_token_kib} = "
        f"{per_gib} tokens, so {memory_gib} GiB holds {memory_gib} x {per_gib} = "
        f"{memory_gib * per_gib} tokens."
    )
    question = question.replace("{model}", model).replace("{memory}", str(memory_gib))
    return Sum(question, answer, shape.held_out)


def random_sum(rng: random.Random, kind: str | None = None) -> Sum:
    """A sum of the given kind, or of any; it may be a held-out one."""
    kind = kind or rng.choice(KINDS)
    if kind == "blocks":
        return blocks(rng.randint(1, MAX_BLOCK_TOKENS), rng.choice(BLOCK_SIZES), rng)
    while True:
        shape = _random_shape(rng)
        kib, odd = divmod(shape.bytes_per_token, KIB)
        if kind == "per_token":
            return per_token(shape, rng)
        if odd == 0 and kind == "total":
            return total(shape, rng.choice(TOKENS), rng)
        if odd == 0 and kind == "fit" and kib & (kib - 1) == 0:
            return fit(shape, rng.choice(MEMORY_GIB), rng)


def training_sum(rng: random.Random) -> Sum:
    """A sum that is not held out."""
    while (candidate := random_sum(rng)).held_out:
        pass
    return candidate
