"""Lab 9: the operations of a layer in one kernel each, beside PyTorch's, in launches and bytes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.tensors import difference, generator
from yaie.demos.traffic import Traffic, interpreted, of_torch, of_triton

ROWS, WIDTH, HEADS, KV_HEADS, HEAD = 16, 256, 4, 2, 64
EPS = 1e-5


def show(subject: Subject) -> Shown:
    """Each operation once, on a few rows."""
    interpreted()
    return compared(
        subject.package.LayerKernels(),
        subject.reference("transformer_ops").TransformerOps(),
        of_triton,
        "in Triton's interpreter",
    )


def compared(
    kernels: Any,
    ops: Any,
    counted: Callable[[Callable[[], Any]], tuple[Any, Traffic]],
    where: str,
) -> Shown:
    """The operations of a layer by PyTorch and by kernels, whose traffic `counted` counts."""
    numbers = generator()
    x, residual = (torch.randn(ROWS, WIDTH, generator=numbers) for _ in range(2))
    weight, gate = (
        torch.randn(WIDTH, generator=numbers),
        torch.randn(ROWS, 2 * WIDTH, generator=numbers),
    )
    q, k = (torch.randn(ROWS, heads, HEAD, generator=numbers) for heads in (HEADS, KV_HEADS))
    angles = torch.rand(ROWS, HEAD // 2, generator=numbers)
    turns = (torch.arange(ROWS), angles.cos(), angles.sin())
    work: dict[str, Callable[[Any], Any]] = {
        "rms_norm": lambda part: part.rms_norm(x.clone(), weight, EPS),
        "fused_add_rms_norm": lambda part: part.fused_add_rms_norm(
            x.clone(), residual.clone(), weight, EPS
        )[0],
        "silu_mul": lambda part: part.silu_mul(gate.clone()),
        "rope": lambda part: torch.cat(part.rope(q.clone(), k.clone(), *turns), dim=1),
    }
    copies = {  # of the arguments, and of the result: they are not the operation's
        "rms_norm": lambda: x.clone(),
        "fused_add_rms_norm": lambda: (x.clone(), residual.clone()),
        "silu_mul": lambda: gate.clone(),
        "rope": lambda: torch.cat((q.clone(), k.clone()), dim=1),
    }
    rows: list[Row] = []
    totals = [Traffic(), Traffic()]
    gap = 0.0
    for name, call in work.items():
        expected, plain = of_torch(partial(call, ops))
        _, copied = of_torch(copies[name])
        plain = Traffic(
            plain.launches - copied.launches,
            0,
            plain.read - copied.read,
            plain.written - copied.written,
        )
        found, own = counted(partial(call, kernels))
        for total, one in zip(totals, (plain, own), strict=True):
            total.launches += one.launches
            total.programs += one.programs
            total.read += one.read
            total.written += one.written
        gap = max(gap, difference(expected, found))
        rows.append(row(f"{name}: launches", plain.launches, own.launches))
        rows.append(row(f"{name}: bytes", plain.moved, own.moved))
    rows.append(row("programs", "", totals[1].programs))
    rows.append(row("largest difference", "", f"{gap:.0e}"))
    return Shown(
        f"{ROWS} rows of {WIDTH}, {HEADS} + {KV_HEADS} heads of {HEAD}, float32, {where}.",
        ("PyTorch", "kernels"),
        tuple(rows),
        f"{totals[1].launches} launches move {totals[1].moved:,} bytes where PyTorch's "
        f"{totals[0].launches} move {totals[0].moved:,}; the results differ by {gap:.0e} at most.",
    )
