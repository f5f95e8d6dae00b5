"""The sizes that an engine's steps are padded to, besides lab 17's of decodes alone.

Prompts that come while others decode make steps of a few hundred tokens: launched one by one, their
kernels keep the host busy for longer than the device. So do steps that verify drafts, to which a token
and its drafts are a chunk. Larger steps keep the device busy for longer than the host: they have no
size, and are launched as they are.
"""

from collections.abc import Iterable

from yaie.core.contracts.graphs import Size

MOST_TOKENS = 2048
"""Of chunks in a step that is padded."""
DECODE_ZONES = (32, 128, 512)
FEW_TOKENS = (8, 16, 32)
"""More sizes of chunks where requests have drafts: what verifies them is a chunk of a few tokens."""


def chunk_zones(most: int, *, drafts: bool = False) -> list[int]:
    """Tokens that chunks are padded to, ascending, up to the lesser of `most` and MOST_TOKENS."""
    last = min(most, MOST_TOKENS)
    zones = [*FEW_TOKENS] if drafts else []
    zones += [*range(64, 512, 64), *range(512, MOST_TOKENS, 128)]
    return [zone for zone in zones if zone < last] + [last]


def decode_zones(most: int, *, drafts: bool = False) -> list[int]:
    """Decodes that are padded to beside chunks, ascending, the last one `most`. With drafts there may be
    none."""
    return [0] * drafts + [zone for zone in DECODE_ZONES if zone < most] + [most]


def sizes_of(alone: Iterable[int], decodes: Iterable[int], tokens: Iterable[int]) -> list[Size]:
    """Sizes of so many decodes `alone`, and of each number of decodes beside each number of tokens of
    chunks, in ascending order of rows. A chunk has two tokens at least, and a request has one chunk."""
    zones = list(decodes)
    sizes = [Size(rows) for rows in alone]
    for count in tokens:
        chunks = max(1, min(max(zones), count // 2))
        sizes += [Size(zone, count, chunks) for zone in zones]
    return sorted(sizes, key=lambda size: size.rows)
