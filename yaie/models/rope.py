"""Tables of the rotary position embedding, and how long a context they are good for."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ConfigError, ModelError
from yaie.models.json_files import shown

MOST_POSITIONS = 1 << 24
"""Of a context. Tables of positions are made beforehand; the longest model there is takes 10 million."""


def rope_tables(
    config: Any,
    max_positions: int,
    device: torch.device,
    share: float = 1.0,
    kind: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(cos, sin), each [max_positions, rotary_dim / 2] float32, as transformers computes them.

    The frequencies are Su et al. 2021 (RoFormer), section 3.4.2, changed by the config's scaling:
    linear (interpolation), dynamic (NTK), llama3, yarn (Peng et al. 2023) or longrope (Ding et al.
    2024). Dynamic scaling changes nothing within the trained length, and `max_context` allows no more.

    share: of each head that is turned, where nothing is scaled; transformers knows it otherwise.
    kind: of the layers that turn so, see `rotation_kind`.
    """
    inv_freq, scaling = _inverse_frequencies(config, max_positions, share, kind)
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), inv_freq)
    return (angles.cos() * scaling).to(device), (angles.sin() * scaling).to(device)


def rotation_kind(config: Any, layer: int) -> str | None:
    """What `layer_types` calls a layer, where layers of each kind turn in their own way; else None."""
    kinds = getattr(config, "layer_types", None)
    kind: str | None = kinds[layer] if kinds else None
    return kind if kind in config.rope_parameters else None


def _inverse_frequencies(
    config: Any, max_positions: int, share: float, kind: str | None
) -> tuple[Tensor, float]:
    """([rotary_dim / 2] float32, factor on cos and sin)."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters, more = config.rope_parameters, dict[str, Any]()
    if kind is not None:
        parameters, more = parameters[kind], {"layer_type": kind}
    rope_type = parameters["rope_type"]
    if rope_type != "default":
        if rope_type not in ROPE_INIT_FUNCTIONS:
            known = ", ".join(["default", *ROPE_INIT_FUNCTIONS])
            raise ModelError(
                f"config.json: rope_parameters.rope_type is {shown(rope_type)}, which is not supported. "
                f"What works: {known}."
            )
        # Only longrope reads seq_len: beyond the trained length it takes its other set of factors.
        inv_freq, scaling = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=max_positions, **more)
        return inv_freq.float(), scaling
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dim = int(dim * share)
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return 1.0 / parameters["rope_theta"] ** exponents, 1.0


def stated_context(config: Any) -> int | None:
    """The context length in tokens that a config gives, by any of the names in use."""
    for name in ("max_position_embeddings", "max_sequence_length", "max_seq_len", "seq_length"):
        length = getattr(config, name, None)
        if length is not None:
            return int(length)
    return None


def max_context(config: Any, wanted: int | None) -> int:
    """The longest sequence, in tokens, that a model with this config can be served with.

    Longrope has one set of factors up to the trained length and another beyond it. Cached keys cannot
    change sets in mid-sequence, so the choice is made once: the short factors, unless a longer context
    is wanted.

    Raises ModelError if the config states no length and none is wanted.
    """
    length = stated_context(config) or wanted
    if length is None:
        raise ModelError(
            f"the config of this {config.model_type} model does not say how long its context is. Set "
            "max_model_len (--max-model-len) to the length that it was trained for."
        )
    parameters = getattr(config, "rope_parameters", None) or {}
    rope_type = parameters.get("rope_type")
    if rope_type == "yarn":
        trained = parameters.get("original_max_position_embeddings") or length
        return max(length, int(trained * (parameters.get("factor") or 1)))
    if rope_type == "longrope":
        trained = int(parameters.get("original_max_position_embeddings") or length)
        return length if wanted is not None and wanted > trained else min(length, trained)
    return length


def served_context(wanted: int | None, config: Any) -> int:
    """The longest sequence that is served: `wanted`, or the model's own.

    Raises ConfigError for more than the model has, ModelError for more than MOST_POSITIONS."""
    limit = max_context(config, wanted)
    if (limit if wanted is None else wanted) > MOST_POSITIONS:
        raise ModelError(
            f"config.json: max_position_embeddings (or n_positions) and rope_parameters give {limit} "
            f"tokens of context, and at most {MOST_POSITIONS} are served. Correct them, or set "
            "max_model_len (--max-model-len) to what you need."
        )
    if wanted is not None and wanted > limit:
        raise ConfigError(
            f"max_model_len {wanted} is beyond this model's context of {limit} tokens. Leave it "
            "out, or set it lower.",
            param="max_model_len",
        )
    return limit if wanted is None else wanted
