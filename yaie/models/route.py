"""From a transformers attention module to the engine's `attend`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.core.contracts import Attend

PAGED = "yaie"
"""Name of our attention in transformers. It has no mask function: the engine's attention is causal and
knows sequences and windows itself, and for a name without one transformers builds no mask."""

MASK_CHECKED = "yaie_mask_checked"
"""The same attention with a mask function that reads off what a model's masks would hide (`probe`)."""


class Temperature(NamedTuple):
    """Queries that grow with their positions (Nakanishi 2025; Llama 4), in layers without rotation.

    transformers' modules count the positions themselves, by the row of a sequence's beginning. In a flat
    batch of several sequences only the engine knows them.
    """

    floor: float
    scale: float

    def of(self, positions: Tensor) -> Tensor:
        """What the queries at these positions [T] are multiplied by: [T] float32."""
        return torch.log1p(torch.floor((positions.float() + 1.0) / self.floor)) * self.scale + 1.0


class Route:
    """Where the attention modules of one model send their queries, keys and values.

    Each module of the model has it as `yaie_route`.

    layers: the layer number of each attention module, in the order in which they are called.
    temperatures: of the attention modules that have one.
    windows: by layer number, how many keys a query sees, itself included; None for all.
    observer: called before each attention with (module, key, mask, options), while a model is tried.
    """

    def __init__(self) -> None:
        self._attend: Attend | None = None
        self._positions: Tensor | None = None
        self.temperatures: dict[Any, Temperature] = {}
        self.layers: dict[Any, int] = {}
        self.windows: list[int | None] = []
        self.observer: Callable[[Any, Tensor, Tensor | None, dict[str, Any]], None] | None = None

    @contextmanager
    def through(self, attend: Attend, positions: Tensor) -> Iterator[None]:
        """Send to `attend` for as long as this lasts. positions: [T], of the tokens."""
        self._attend, self._positions = attend, positions
        try:
            yield
        finally:
            self._attend = self._positions = None

    def attention(
        self, module: Any, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """q [1, heads, T, d], k [1, kv_heads, T, d], v like k or narrower; returns [1, T, heads, dv]."""
        if self._attend is None:
            raise RuntimeError("a model of the generic adapter ran outside of its forward")
        layer = self.layers[module]
        if self.temperatures and module in self.temperatures and self._positions is not None:
            q = (q * self.temperatures[module].of(self._positions)[:, None]).to(q.dtype)
        scale = options.get("scaling")
        spec = AttentionSpec(
            scale=q.shape[-1] ** -0.5 if scale is None else float(scale),
            window=self.windows[layer],
            softcap=options.get("softcap"),
            sinks=options.get("s_aux"),
        )
        # The pool has one width for keys and values; DeepSeek's values are narrower than its keys.
        narrower = k.shape[-1] - v.shape[-1]
        if narrower:
            v = F.pad(v, (0, narrower))
        q, k, v = (part[0].transpose(0, 1) for part in (q, k, v))
        out = self._attend(layer, q, k, v, spec)
        return out[None, ..., : out.shape[-1] - narrower]


def paged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each attention module.

    query [1, heads, T, d], key and value [1, kv_heads, T, d]; returns ([1, T, heads, d], no weights).
    """
    route = module.yaie_route
    if route.observer is not None:
        route.observer(module, key, attention_mask, options)
    return route.attention(module, query, key, value, options), None
