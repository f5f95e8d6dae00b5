"""What a model's `config.json` says before any weight is read."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.activation_names import import_checks
from yaie.models.fields import check_config
from yaie.models.json_files import Json, bad_field, read_json, shown
from yaie.models.lookalikes import no_config
from yaie.models.packing import read_format

_HEADS = ("head_dim", "global_head_dim", "swa_head_dim", "attention_head_dim", "kv_channels")
"""Names under which families of transformers state the size of a head."""


def read_config(folder: Path) -> Any:
    """The transformers PretrainedConfig of a model's folder.

    Raises ModelError if there is none, or none that transformers knows without remote code, if a field
    holds what no model can have, or if the weights are packed in a format that is not read.
    """
    from transformers import AutoConfig

    path = folder / "config.json"
    if not path.is_file():
        raise no_config(folder)
    values = read_json(path)
    check_config(path, values)
    import_checks()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each architecture checks its configuration in its own way
        if field := _culprit(values):
            wanted = f"what transformers takes ({told(error)})"
            raise bad_field(path, field, values[field], wanted) from error
        kind = shown(values.get("model_type"))
        raise ModelError(
            f"{path} (model_type {kind}) cannot be used: {told(error)} Models of architectures that "
            "this installation of transformers does not have are not supported, nor are those that "
            "bring their own code."
        ) from error
    if isinstance(config.get_text_config(), dict):
        told_of = values.get("text_config")
        raise bad_field(path, "text_config", told_of, f"left out: a {config.model_type} has none")
    if not getattr(config, "architectures", None):
        raise ModelError(
            f'{path} names no architecture. Add one, such as "architectures": ["LlamaForCausalLM"].'
        )
    read_format(folder, config)
    return config


def _culprit(values: Json) -> str | None:
    """The field without which transformers would take this configuration."""
    from transformers import CONFIG_MAPPING

    kind: Any = None
    with suppress(KeyError, TypeError):
        kind = CONFIG_MAPPING[values.get("model_type", "")]
    if kind is None:
        return None
    with suppress(Exception):
        kind.from_dict(dict(values))
        return None  # what it stumbled over is not in the family's own fields
    for field in values:
        if field == "model_type":
            continue
        with suppress(Exception):  # of whatever kind the first one was
            kind.from_dict({name: value for name, value in values.items() if name != field})
            return field
    return None


def told(error: BaseException) -> str:
    """What a library says of a failure, on one line: its first, or more where that ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    text = lines[0]
    for line in lines[1:]:
        if not text.endswith(":"):
            break
        text = f"{text} {line}"
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."


MOST_TOLD = 300
"""Characters of a library's message."""


def head_dims(config: Any) -> tuple[int, ...]:
    """Every size that a head of the model may have, as far as its config tells; () if it does not.

    Multi-head latent attention (DeepSeek) joins two parts to a key, and states each. Where no size is
    stated, the hidden state is shared out among the heads. Layers may differ (Gemma 4).
    """
    config = config.get_text_config(decoder=True)
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    return tuple(sorted({size for layer in layers for size in _head_dims(layer)}))


def _head_dims(config: Any) -> set[int]:
    """Of a layer, or of all layers of a model whose layers do not differ."""
    sizes = {_stated(config, name) for name in _HEADS}
    joined = _stated(config, "qk_nope_head_dim") + _stated(config, "qk_rope_head_dim")
    sizes |= {joined, _stated(config, "v_head_dim")}
    hidden, heads = _stated(config, "hidden_size"), _stated(config, "num_attention_heads")
    if not any(sizes) and heads:
        sizes = {hidden // heads}
    return sizes - {0}


def _stated(config: Any, name: str) -> int:
    """A number of the config; 0 if it is not there, or a list with an entry for each layer."""
    value = getattr(config, name, None)
    return value if isinstance(value, int) else 0
