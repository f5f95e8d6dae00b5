"""As AWQ's tools pack weights (version gemm): along the outputs, in an order of their kernel's.

name.qweight   [in, out / 8] int32       number i of a word is that of output ORDER[i] of its eight
name.qzeros    [groups, out / 8] int32   likewise
name.scales    [groups, out] float16
"""

import torch
from torch import Tensor

from yaie.models.layout import Destination
from yaie.models.schemes.words import KINDS, Int4Scheme, numbers, words

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
PLACES = [ORDER.index(output) for output in range(8)]


class AwqInt4(Int4Scheme):
    """Packed anew, along the inputs, when all of it is there."""

    name = "awq_int4"

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        self._qweight = torch.empty(inputs, outputs // 8, dtype=torch.int32, device=device)
        self._qzeros = torch.empty(groups, outputs // 8, dtype=torch.int32, device=device)
        self._scales = torch.empty(groups, outputs, dtype=torch.float16, device=device)

    def destinations(self, *names: str) -> dict[str, Destination]:
        return {
            **self._parts(self._qweight, 1, names, "qweight", self._codes),
            **self._parts(self._qzeros, 1, names, "qzeros"),
            **self._parts(self._scales, 1, names, "scales"),
            **self._biases(names),
        }

    def _complete(self) -> None:
        codes = _in_order(self._qweight).flatten(1)  # [in, out]
        qweight = words(codes.unflatten(0, (-1, 8)).transpose(1, 2))
        self._complete_with(qweight, self._scales, words(_in_order(self._qzeros)))
        del self._qweight, self._qzeros


def _in_order(packed: Tensor) -> Tensor:
    """[..., n] words as [..., n, 8] numbers, by output."""
    return numbers(packed)[..., PLACES]


KINDS["awq", 4] = AwqInt4
