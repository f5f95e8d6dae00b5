"""Which calls of a layer make indices, or fetch numbers, that belong in the plan."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from solutions.transformer_ops import TransformerOps

PLANNING = frozenset(
    "tensor as_tensor new_tensor arange nonzero item tolist argsort __int__ __bool__".split()
)
INDEXING = frozenset("__getitem__ __setitem__".split())


class PlanningSeen(TorchFunctionMode):
    """Writes down calls that make index tensors of numbers, or fetch numbers from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.paused = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in PLANNING and not self.paused:
            self.names.append(name)
        if name in INDEXING and not self.paused and _has_a_list(args[1]):
            self.names.append("an index that is a list")
        return func(*args, **(kwargs or {}))


class UnseenMasks(TransformerOps):
    """The mask is the operations' affair: how they make it is not looked at."""

    def __init__(self, seen: PlanningSeen) -> None:
        self._seen = seen

    def causal_mask(self, *args: Any, **kwargs: Any) -> Tensor:
        self._seen.paused = True
        try:
            return super().causal_mask(*args, **kwargs)
        finally:
            self._seen.paused = False


def _has_a_list(index: Any) -> bool:
    """Whether PyTorch makes a tensor of this index, or of a part of it, in each call."""
    return any(isinstance(each, list) for each in (index if isinstance(index, tuple) else (index,)))
