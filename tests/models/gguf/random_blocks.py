"""Blocks of a GGUF with random codes, in numpy alone."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2),
    "Q5_K": (0, 2), "Q6_K": (208,), "MXFP4": (),
}  # fmt: skip
"""Where in a block its float16 numbers are."""


def random_bytes(
    generator: np.random.Generator, kind: Type, blocks: int, scale: float
) -> np.ndarray:
    """[blocks, bytes of a block]: random codes, and finite float16 numbers of about `scale`."""
    data = generator.integers(0, 256, (blocks, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in SCALES[kind.name]:
        numbers = (generator.standard_normal(blocks) * scale).astype(np.float16)
        data[:, at : at + 2] = numbers[:, None].view(np.uint8)
    if kind == Type.MXFP4:  # a power of two, in one byte
        data[:, 0] = generator.integers(120, 125, blocks) + round(np.log2(scale))
    return data
