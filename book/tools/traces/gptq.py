"""A row of eight weights rounded to INT4 one input after the other: to the nearest, and by GPTQ."""

from typing import TYPE_CHECKING, Any

from book.tools.traces import Part, Trace

if TYPE_CHECKING:
    from torch import Tensor

LAB = "quantization"

# One output's weights. The largest is 7.5, so that a symmetric grid has a scale of 1: whole numbers.
ROW = (2.4, 3.4, -7.5, 0.6, -4.3, 5.4, 1.4, -2.6)
# Calibration inputs, whose numbers rise and fall together, more or less.
INPUTS = (
    (2, 1, 1, 2, 1, 2, 1, 1),
    (1, 2, 2, 1, 1, 1, 2, 1),
    (3, 2, 2, 3, 2, 2, 2, 3),
    (-1, -1, 0, -1, -2, -1, -1, -1),
    (-2, -1, -2, -1, -1, -2, -1, -2),
    (1, 1, 2, 2, 1, 1, 0, 1),
    (0, 1, -1, 0, 1, 0, 1, -1),
    (2, 3, 2, 2, 3, 2, 3, 2),
    (1, 0, 1, -1, 0, 1, 0, 1),
)  # fmt: skip
GROUP = 8
OUTPUTS = 8
"""A weight has a multiple of eight; the figure shows the first."""


def record(part: Part) -> Trace:
    """A track for each way. What is rounded are the part's codes; where the rest stands is computed
    from them: the weights with which the inputs' products are least wrong, given those codes."""
    import torch

    lab = part("quantization")
    weight = torch.tensor(ROW).repeat(OUTPUTS, 1)
    hessian = lab.Hessian(len(ROW))
    hessian.add(torch.tensor(INPUTS, dtype=torch.float32))
    int4, gptq = lab.Int4(), lab.Gptq(lab.Int4())
    nearest = int4.dequantize(int4.quantize(weight, GROUP))[0]
    moved = int4.dequantize(gptq.quantize(weight, hessian.hessian, GROUP))[0]
    damped = torch.cholesky_inverse(gptq.factor(hessian.hessian), upper=True)

    def best(rounded: "Tensor") -> "Tensor":
        """The weights that are left, where the loss is least with the first ones rounded."""
        n = len(rounded)
        error = torch.tensor(ROW)[:n] - rounded
        rest = torch.linalg.solve(damped[n:, n:], damped[n:, :n] @ error)
        return torch.cat([rounded, torch.tensor(ROW)[n:] + rest])

    def stay(rounded: "Tensor") -> "Tensor":
        return torch.cat([rounded, torch.tensor(ROW)[len(rounded) :]])

    ways = {
        "gptq": ("GPTQ", [best(moved[:n]) for n in range(len(ROW) + 1)]),
        "nearest": ("to the nearest", [stay(nearest[:n]) for n in range(len(ROW) + 1)]),
    }
    most = max(_loss(rows[-1]) for _, rows in ways.values())
    return {
        "tracks_label": "Rounded",
        "tracks": {
            key: {
                "label": label,
                "row": list(ROW),
                "most": round(most, 2),
                "steps": [_seen(key, n, rows) for n in range(len(rows))],
            }
            for key, (label, rows) in ways.items()
        },
    }


def _loss(values: "Tensor") -> float:
    """The mean square by which the products of the calibration inputs are off."""
    import torch

    errors = torch.tensor(INPUTS, dtype=torch.float32) @ (torch.tensor(ROW) - values)
    return float(errors.square().mean())


def _seen(way: str, n: int, rows: "list[Tensor]") -> dict[str, Any]:
    """The row when n inputs are rounded."""
    values, error = rows[n], _loss(rows[n])
    at = "Nothing is rounded yet."
    if n:
        was, now = float(rows[n - 1][n - 1]), float(values[n - 1])
        at = f"Input {n}: {_number(was)} becomes {now:.0f}."
        if way == "gptq" and n < len(ROW):
            at += " The weights that are left have moved."
    return {
        "say": f"{at} The products are off by {_number(error)}, squared, on average.",
        "values": [round(float(value), 2) for value in values],
        "rounded": n,
        "error": round(error, 2),
    }


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"
