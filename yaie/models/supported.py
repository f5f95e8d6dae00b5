"""What cannot be served, and why: said by name before any weight is read."""

import sys
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.layer_kinds import has_known_layers, unheld_layers


def check_architecture(architecture: str, config: Any, wanted: int | None = None) -> None:
    """Raise ModelError, by name, for what is known beforehand not to work.

    config: a transformers PretrainedConfig. wanted: the longest sequence, if not the model's own.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    continues = {
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
        *auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values(),
    }
    model_class = getattr(transformers, architecture, None)
    module = sys.modules[model_class.__module__] if model_class is not None else None
    others = [kind for kind in ("vision", "audio") if getattr(config, f"{kind}_config", None)]
    if model_class is None:
        reason = "this transformers does not have it, and code that comes with a model is not run"
    elif config.is_encoder_decoder:
        reason = (
            "it is an encoder-decoder, whose layers attend to what an encoder made of the input as "
            "well; only decoders are served"
        )
    elif others:
        reason = (
            "it takes images or sound beside text, and which of its parts continues texts cannot be "
            "seen; look for a text-only model of its family"
        )
    elif architecture not in continues:
        reason = "it is no language model that continues a text"
    elif layers := unheld_layers(config, wanted):
        reason = layers
    elif getattr(model_class, "_is_stateful", False) and not has_known_layers(config):
        reason = "it keeps a state beside keys and values, which a paged cache cannot hold"
    elif not hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        reason = own_attention(module)
    else:
        return
    raise unsupported(architecture, reason)


def check_layers(architecture: str, config: Any, wanted: int | None = None) -> None:
    """The same for the decoder of a model that takes more than text. config: of the decoder."""
    if layers := unheld_layers(config, wanted):
        raise unsupported(architecture, layers)


def own_attention(module: Any) -> str:
    """Why the attention of a model cannot be served that is defined in this module of transformers."""
    names = [name for name in vars(module) if name.endswith("Attention")]
    which = f" ({', '.join(names[:2])})" if names else ""
    return (
        f"its attention{which} is computed in its own way, as in models with ALiBi, and not through "
        "transformers' AttentionInterface, so that a paged cache cannot be put in its place"
    )


def unsupported(architecture: str, reason: str) -> ModelError:
    """The error for an architecture that cannot be served."""
    return ModelError(
        f"the architecture {architecture} is not supported: {reason}. What works: Llama, Mistral, "
        "Qwen2, Qwen3, Gemma 2 to 4, OLMo 2 and 3, Granite, gpt-oss, GPT-2, LFM2, Qwen3.5, and the "
        "decoder-only models of transformers that attend through its AttentionInterface (Gemma 3n, Phi, "
        "OPT, GPT-NeoX and others)."
    )
