"""What a model's `config.json` says before any weight is read."""

from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.activation_names import import_checks
from yaie.models.packing import read_format

_HEADS = ("head_dim", "global_head_dim", "swa_head_dim", "attention_head_dim", "kv_channels")
"""Names under which families of transformers state the size of a head."""


def read_config(folder: Path) -> Any:
    """The transformers PretrainedConfig of a model's folder.

    Raises ModelError if there is none, or none that transformers knows without remote code, or if the
    weights are packed in a format that is not read.
    """
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a model in Hugging Face layout. Give the folder "
            "that save_pretrained wrote, or the id of a model on the hub."
        )
    import_checks()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each architecture checks its configuration in its own way
        raise ModelError(
            f"{folder / 'config.json'} cannot be used: {str(error).strip().splitlines()[0]} "
            "Models of architectures that this installation of transformers does not have are not "
            "supported, nor are those that bring their own code."
        ) from error
    if not getattr(config, "architectures", None):
        raise ModelError(
            f"{folder / 'config.json'} names no architecture. Add one, such as "
            '"architectures": ["LlamaForCausalLM"].'
        )
    read_format(folder, config)
    return config


def head_dims(config: Any) -> tuple[int, ...]:
    """Every size that a head of the model may have, as far as its config tells; () if it does not.

    Multi-head latent attention (DeepSeek) joins two parts to a key, and states each. Where no size is
    stated, the hidden state is shared out among the heads.
    """
    config = config.get_text_config()
    sizes = {_stated(config, name) for name in _HEADS}
    joined = _stated(config, "qk_nope_head_dim") + _stated(config, "qk_rope_head_dim")
    sizes |= {joined, _stated(config, "v_head_dim")}
    hidden, heads = _stated(config, "hidden_size"), _stated(config, "num_attention_heads")
    if not any(sizes) and heads:
        sizes = {hidden // heads}
    return tuple(sorted(sizes - {0}))


def _stated(config: Any, name: str) -> int:
    """A number of the config; 0 if it is not there, or a list with an entry for each layer."""
    value = getattr(config, name, None)
    return value if isinstance(value, int) else 0
