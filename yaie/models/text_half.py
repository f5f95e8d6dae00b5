"""The language part of a checkpoint that takes images or sound beside text: served for text alone.

transformers nests it: a model for images holds a tower that sees, a projector and a plain decoder, and
its configuration holds one for each. Which tensor of a checkpoint belongs to which part is decided by
transformers' own table of names (`transformers.conversion_mapping`), as published checkpoints have names
of several years. Tensors of the other parts are never read.

The decoder runs on a hand-written adapter where there is one for it. Otherwise it runs as transformers
has it: as a model of its own, or, where there is no such, as a part of the whole model (`generic_half`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from yaie.models.adapter import ModelAdapter, registered_adapter
from yaie.models.skeleton import Skeleton, conversions
from yaie.models.supported import check_layers

_TAKES = {"vision": "images", "audio": "sounds", "encoder": "sounds"}
"""What a part of a configuration `<name>_config` stands for, in words."""

_THINKERS = {
    "qwen2_5_omni": "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen3_omni_moe": "Qwen3OmniMoeThinkerForConditionalGeneration",
}
"""Of models that speak: the class of the part that writes the text."""

_SAME_ON_TEXT = {
    "qwen2_vl_text": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen2_5_vl_text": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen2_5_omni_text": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3_vl_text": ("Qwen3Config", "Qwen3ForCausalLM"),
}
"""Decoders of transformers that are no models of their own, and those that compute the same of text.
They differ in the rotation, which takes three positions for each token, of time, height and width (Wang
et al. 2024, Qwen2-VL, section 2.1). In a text all three are the token's index, and then every frequency
turns by the same position, as usual."""


@dataclass(frozen=True, eq=False)
class TextHalf:
    """Of a model that takes more than text.

    config: what its adapter is made of: that of a decoder alone, or of the whole model.
    kind: the adapter.
    left_out: what the model takes beside text and is not served with: "images", "sounds" or both.
    skeleton: which of the whole model's tensors are the decoder's. is_alone: whether the adapter knows
        them by the names that they have in a checkpoint of a decoder alone.
    """

    config: Any
    kind: type[ModelAdapter]
    left_out: str
    skeleton: Skeleton
    is_alone: bool

    def stored_names(self, names: Iterable[str]) -> dict[str, str]:
        """Of a checkpoint's tensors, by name: those of the language part. From the name that the adapter
        knows to the stored one."""
        return dict(self.language_tensors((one, one) for one in names))

    def language_tensors(self, tensors: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Those of the language part, by the name that the adapter knows; the others are passed over."""
        for stored, tensor in tensors:
            name = self.skeleton.name_alone(stored)
            if name is not None:
                yield name if self.is_alone else stored, tensor


def find_text_half(
    config: Any, force_generic: bool = False, wanted: int | None = None
) -> TextHalf | None:
    """Of a transformers PretrainedConfig; None if that is of a model for text alone, or of one that does
    not continue texts.

    force_generic: do not use a hand-written adapter. wanted: the longest sequence, if not the model's
    own. Raises ModelError where the decoder cannot be served, or where the model's class does not show
    which of its parts it is.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    architecture = _THINKERS.get(config.model_type, config.architectures[0])
    known = {
        *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values(),
        *auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values(),
    }
    whole = getattr(config, "thinker_config", None) or config
    left_out = other_inputs(whole)
    model_class = getattr(transformers, architecture, None)
    if not left_out or config.is_encoder_decoder or architecture not in known or not model_class:
        return None
    if whole.get_text_config(decoder=True) is whole:
        return None
    alone, by_hand = _alone(whole), None
    if alone is not None and not force_generic:
        by_hand = registered_adapter(alone.architectures[0], alone)
    if by_hand is None:
        check_layers(architecture, whole.get_text_config(decoder=True), wanted)
    whole.architectures = [architecture]
    skeleton = Skeleton.of(model_class, whole)
    if alone is not None and (by_hand is not None or skeleton.converted <= _converted(alone)):
        return TextHalf(alone, by_hand or _generic(), left_out, skeleton, is_alone=True)
    from yaie.models.generic_half import half_adapter

    kind = half_adapter(model_class, skeleton)
    return TextHalf(whole, kind, left_out, skeleton, is_alone=False)


def _converted(alone: Any) -> frozenset[str]:
    """What transformers converts in the checkpoint of a decoder alone: some tables know a tensor only in
    the whole model."""
    import torch
    import transformers

    with torch.device("meta"):
        return conversions(getattr(transformers, alone.architectures[0])(alone))


def _generic() -> type[ModelAdapter]:
    from yaie.models.generic import GenericAdapter

    return GenericAdapter


def other_inputs(config: Any) -> str:
    """What a model with this configuration takes beside text, in words; "" for one of text alone."""
    found = [word for kind, word in _TAKES.items() if getattr(config, f"{kind}_config", None)]
    return " and ".join(dict.fromkeys(found))


def _alone(whole: Any) -> Any:
    """The configuration of the decoder as a model of its own; None where transformers has no such."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config = whole.get_text_config(decoder=True)
    if config.model_type in _SAME_ON_TEXT:
        name, architecture = _SAME_ON_TEXT[config.model_type]
        values = {key: value for key, value in config.to_dict().items() if key != "model_type"}
        rope = dict(values.get("rope_parameters") or {})
        rope.pop("mrope_section", None)
        config = getattr(transformers, name)(**values | {"rope_parameters": rope})
    else:
        architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
        if not isinstance(architecture, str):
            return None
    config.architectures = [architecture]
    # The head is the outer model's, and so is what is said of it.
    for field in ("tie_word_embeddings", "eos_token_id", "dtype"):
        value = getattr(whole, field, None)
        if value is not None:
            setattr(config, field, value)
    return config
