"""What cannot be served, and why: told by name before any weight is read."""

import sys
from typing import Any

from yaie.core.errors import ModelError

OWN_ATTENTION = (
    "it computes attention in its own way, as models with ALiBi do, and cannot use a paged cache"
)


def check_architecture(architecture: str, config: Any) -> None:
    """Raise ModelError, by name, for what is known beforehand not to work."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    model_class = getattr(transformers, architecture, None)
    if model_class is None:
        reason = "this transformers does not have it, and code that comes with a model is not run"
    elif config.is_encoder_decoder:
        reason = "it is an encoder-decoder, and only decoders are served"
    elif any(getattr(config, f"{kind}_config", None) for kind in ("vision", "audio")):
        reason = "it takes images or sound beside text; look for a text-only model of its family"
    elif architecture not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        reason = "it is no language model that continues a text"
    elif getattr(model_class, "_is_stateful", False):
        reason = (
            "it keeps a recurrent state beside keys and values, which a paged cache cannot hold"
        )
    elif not hasattr(sys.modules[model_class.__module__], "ALL_ATTENTION_FUNCTIONS"):
        reason = OWN_ATTENTION
    else:
        return
    raise unsupported(architecture, reason)


def unsupported(architecture: str, reason: str) -> ModelError:
    """The error for an architecture that cannot be served."""
    return ModelError(
        f"the architecture {architecture} is not supported: {reason}. What works: Llama, Mistral, "
        "Qwen2, Qwen3, GPT-2, and the decoder-only models of transformers that attend through its "
        "AttentionInterface (Gemma, Phi, OPT, GPT-NeoX, OLMo and others)."
    )
