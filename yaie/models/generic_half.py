"""The generic adapter for a text half that no adapter of our own computes."""

from typing import Any, ClassVar

import torch

from yaie.core.contracts import TransformerOps
from yaie.models.generic import GenericAdapter
from yaie.models.schemes import Packing
from yaie.models.skeleton import Skeleton, without_towers


class HalfAdapter(GenericAdapter):
    """transformers' own model for text and more, built without what is not its text half."""

    built_with = "eager"  # not every tower can be made for ours
    is_nested = True
    whole_class: ClassVar[Any]
    skeleton: ClassVar[Skeleton]

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: Packing | None = None,
    ) -> None:
        """config: of the whole model."""
        decoder = config.get_text_config(decoder=True)
        super().__init__(decoder, ops, dtype, device, max_length, packing)
        self._whole = config

    def foreign(self) -> tuple[Any, Any]:
        return without_towers(self.whole_class, self.skeleton), self._whole

    def taken_apart(self, model: Any) -> Any:
        skeleton = self.skeleton
        return model.get_submodule(skeleton.decoder) if skeleton.is_whole else model


def half_adapter(model_class: Any, skeleton: Skeleton) -> type[HalfAdapter]:
    """The adapter for the text half of a class of transformers."""
    return type("HalfAdapter", (HalfAdapter,), {"whole_class": model_class, "skeleton": skeleton})
