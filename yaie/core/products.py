"""Products of few rows with the operations around them: what a backend may offer an adapter."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class PlainWeight(NamedTuple):
    """Of y = x @ weight.T + bias. weight: [out, in]; bias: [out] or None."""

    weight: "Tensor"
    bias: "Tensor | None"


class FusedProducts(Protocol):
    """The field `fused` of a `TransformerOps` that has them. Rows are tokens, of one dtype and device.

    Results are those of the separate operations, rounded where those round, but for the order of sums.
    """

    def takes(self, hidden: "Tensor") -> bool:
        """Whether a step whose residual is `hidden` [T, hidden] is to be computed so."""
        ...

    def after_norm(self, x: "Tensor", gain: "Tensor", eps: float, product: PlainWeight) -> "Tensor":
        """product(rms_norm(x, gain, eps)). x: [T, in]; returns [T, out]."""
        ...

    def gated(self, x: "Tensor", gain: "Tensor", eps: float, product: PlainWeight) -> "Tensor":
        """silu(g) * u for [g | u] = `after_norm`. Returns [T, out / 2]."""
        ...

    def onto(self, x: "Tensor", product: PlainWeight, residual: "Tensor") -> "Tensor":
        """residual + product(x); may be written over residual [T, out]."""
        ...
