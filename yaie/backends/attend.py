"""What a model's `attend` is in a step."""

from typing import Any

from torch import Tensor

from yaie.core.batch import AttentionSpec, Rotation
from yaie.core.contracts import Attend


def attend_through(attention: Any, plan: Any) -> Attend:
    """The `attend` of a step, for attention that takes the rotation along and for any other."""

    def attend(
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        rotation: Rotation | None = None,
    ) -> Tensor:
        if getattr(attention, "takes_rotation", False):
            return attention.run(layer, q, k, v, spec, plan, rotation)
        if rotation is not None:
            q, k = rotation.apply(q, k)
        return attention.run(layer, q, k, v, spec, plan)

    return attend
