"""What the machine can do at most, measured in the same run: moving bytes, and multiplying matrices."""

from typing import Any

import torch

from yaie.bench.kernels.timing import Timing, measure

COPIED = (2**28, 2**29, 2**30)
SIDE = 8192


def ceilings() -> dict[str, dict[str, Any]]:
    """Of a copy in GB/s (read and written bytes both count) and of a bfloat16 product in TFLOP/s."""
    size, copy = min(((size, _copy(size)) for size in COPIED), key=lambda c: c[1].median / c[0])
    product = _product()
    return {
        "GB/s": {
            **copy.as_json(),
            "what": f"copy of {size >> 20:,} MiB",
            "rate": 2 * size / copy.median / 1e6,
        },
        "TFLOP/s": {
            **product.as_json(),
            "what": f"bfloat16 product of {SIDE:,} x {SIDE:,}",
            "rate": 2 * SIDE**3 / product.median / 1e9,
        },
    }


def _copy(size: int) -> Timing:
    """Launched: in a graph it would be done by a copy engine, which is slower than the cores."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return measure(lambda: target.copy_(source), [()], capture=False)


def _product() -> Timing:
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return measure(lambda: torch.mm(a, b, out=out), [()])
